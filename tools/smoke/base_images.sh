#!/bin/bash
# Builds the images that Dockerfile and the compose files start from, out of the trees of trees.sh and a CPython 3.12 of
# this machine, with the names of the real ones: python:3.12-slim, postgres:18, valkey/valkey:9.1. The engine of
# engine.sh must run. The servers get entrypoints that do the part of the official ones that docker-compose.yml uses.
#
#   tools/smoke/base_images.sh FOLDER
set -euo pipefail
folder=$(realpath "${1:?usage: base_images.sh FOLDER}")
prefix=""
for python in python3.12 "${PYENV_ROOT:-$HOME/.pyenv}"/versions/3.12*/bin/python3.12; do
    prefix=${prefix:-$("$python" -c 'import sys; print(sys.base_prefix)' 2>/dev/null || true)}
done
[ -n "$prefix" ] || { echo "base_images.sh: there is no Python 3.12 on this machine" >&2; exit 1; }
export DOCKER_HOST=unix://$folder/docker.sock DOCKER_CONFIG=$folder/config
for name in python postgres valkey; do
    docker image inspect "smoke/$name" >/dev/null 2>&1 || docker import "$folder/trees/$name.tar" "smoke/$name" >/dev/null
done

build() {  # TAG FOLDER; the Dockerfile is read from standard input
    docker build --quiet --network host --tag "$1" --file - "$2"
}

context=$(mktemp -d)
trap 'rm -rf "$context"' EXIT
cp --dereference /etc/ssl/certs/ca-certificates.crt "$context/ca.crt"
mkdir "$context/prefix"
tar -C "$prefix" --exclude=test --exclude=__pycache__ --exclude='*.a' --exclude=site-packages -cf - bin lib include |
    tar -C "$context/prefix" -xf -
build python:3.12-slim "$context" <<'END'
FROM smoke/python
COPY prefix /usr/local
COPY ca.crt /etc/ssl/certs/ca-certificates.crt
RUN ldconfig && python3 -m ensurepip && ln -sf pip3 /usr/local/bin/pip && ln -sf python3 /usr/local/bin/python
ENV PIP_CERT=/etc/ssl/certs/ca-certificates.crt LANG=C.UTF-8
CMD ["python3"]
END

cat > "$context/entrypoint.sh" <<'END'
#!/bin/bash
set -euo pipefail
[ "$(id -u)" != 0 ] || {
    mkdir -p "$PGDATA" && chown -R postgres "$PGDATA" && chmod 700 "$PGDATA"
    exec gosu postgres "$0" "$@"
}
if [ ! -s "$PGDATA/PG_VERSION" ]; then
    initdb --username="$POSTGRES_USER" --pwfile=<(printf '%s\n' "$POSTGRES_PASSWORD") --auth-host=scram-sha-256 \
        --auth-local=trust >/dev/null
    printf 'host all all all scram-sha-256\n' >> "$PGDATA/pg_hba.conf"
    printf "listen_addresses = '*'\n" >> "$PGDATA/postgresql.conf"
    pg_ctl --wait -o "-c listen_addresses=''" start >/dev/null
    createdb --username="$POSTGRES_USER" "$POSTGRES_DB"
    pg_ctl --wait --mode=fast stop >/dev/null
fi
exec "$@"
END
chmod +x "$context/entrypoint.sh"
build postgres:18 "$context" <<'END'
FROM smoke/postgres
RUN groupmod --non-unique -g 999 postgres && usermod --non-unique -u 999 -g 999 postgres \
    && rm -rf /var/lib/postgresql/* && chown postgres:postgres /var/lib/postgresql && chmod 1777 /var/lib/postgresql \
    && install -d -o postgres -g postgres -m 3777 /var/run/postgresql
COPY entrypoint.sh /usr/local/bin/docker-entrypoint.sh
ENV PATH=/usr/lib/postgresql/18/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
    PGDATA=/var/lib/postgresql/18/docker LANG=C.UTF-8
VOLUME /var/lib/postgresql
ENTRYPOINT ["docker-entrypoint.sh"]
STOPSIGNAL SIGINT
EXPOSE 5432
CMD ["postgres"]
END

cat > "$context/valkey.sh" <<'END'
#!/bin/sh
set -eu
if [ "$1" = valkey-server ] && [ "$(id -u)" = 0 ]; then
    chown -R valkey /data
    exec setpriv --reuid=valkey --regid=valkey --clear-groups "$0" "$@"
fi
exec "$@"
END
chmod +x "$context/valkey.sh"
build valkey/valkey:9.1 "$context" <<'END'
FROM smoke/valkey
RUN groupmod --non-unique -g 999 valkey && usermod --non-unique -u 999 -g 999 valkey && install -d -o valkey -g valkey /data
COPY valkey.sh /usr/local/bin/docker-entrypoint.sh
ENTRYPOINT ["docker-entrypoint.sh"]
VOLUME /data
WORKDIR /data
EXPOSE 6379
CMD ["valkey-server"]
END
