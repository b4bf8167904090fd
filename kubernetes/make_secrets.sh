#!/bin/sh
# Prints the secrets of the manifests, with new passwords, for `kubectl apply`. Run it once: Postgres keeps its first
# password. For servers of your own, edit the URLs before you apply them.
#
#   kubernetes/make_secrets.sh | kubectl apply --namespace tilewatch -f -
set -eu
make_password() { od -An -N24 -tx1 /dev/urandom | tr -d ' \n'; }
owner=$(make_password) worker=$(make_password) board=$(make_password) broker=$(make_password)
database=postgres:5432/tilewatch
broker_url=redis://:$broker@redis:6379/0
cat <<END
apiVersion: v1
kind: Secret
metadata: {name: servers}
stringData: {POSTGRES_PASSWORD: "$owner", REDIS_PASSWORD: "$broker"}
---
apiVersion: v1
kind: Secret
metadata: {name: owner}
stringData:
  TILEWATCH_DATABASE_URL: postgresql://tilewatch:$owner@$database
  TILEWATCH_BROKER_URL: $broker_url
  TILEWATCH_WORKER_PASSWORD: "$worker"
  TILEWATCH_BOARD_PASSWORD: "$board"
---
apiVersion: v1
kind: Secret
metadata: {name: worker}
stringData:
  TILEWATCH_DATABASE_URL: postgresql://tilewatch_worker:$worker@$database
  TILEWATCH_BROKER_URL: $broker_url
---
apiVersion: v1
kind: Secret
metadata: {name: dashboard}
stringData:
  TILEWATCH_DATABASE_URL: postgresql://tilewatch_board:$board@$database
END
