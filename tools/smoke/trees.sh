#!/bin/bash
# Makes what the smoke test needs where no container registry is reached: a Debian tree with Docker's engine, and a tree
# for each image that the compose files and the Dockerfile name. Needs root, mmdebstrap and Debian's mirror; 7 minutes.
#
#   tools/smoke/trees.sh FOLDER
set -euo pipefail
folder=$(realpath -m "${1:?usage: trees.sh FOLDER}")
mirror=$(awk '/^URIs:/ {print $2; exit}' /etc/apt/sources.list.d/debian.sources)
mkdir -p "$folder/trees"

make_tree() {  # NAME SUITE PACKAGES
    [ ! -s "$folder/trees/$1.tar" ] || return 0
    nice -n 19 mmdebstrap --quiet --variant=minbase --include="$3" --keyring=/usr/share/keyrings \
        --aptopt='Acquire::Check-Valid-Until "false"' --dpkgopt='path-exclude=/usr/share/man/*' \
        --dpkgopt='path-exclude=/usr/share/doc/*' --dpkgopt='path-exclude=/usr/share/locale/*' \
        "$2" "$folder/trees/$1.part.tar" "deb $mirror $2 main"
    mv "$folder/trees/$1.part.tar" "$folder/trees/$1.tar"
}

# forky has the majors of Postgres and Valkey that the compose file names; trixie is what python:3.12-slim is made of.
make_tree engine forky docker.io,docker-cli,docker-compose,docker-buildx,iptables,nftables,git,ca-certificates,procps,iproute2
make_tree postgres forky postgresql-18,locales,less,gosu
make_tree valkey forky valkey-server,valkey-tools,tzdata,util-linux
make_tree python trixie ca-certificates,netbase,tzdata,libssl3t64,libffi8,libsqlite3-0,zlib1g,libbz2-1.0,liblzma5,libreadline8t64,libuuid1,libncursesw6,libexpat1
