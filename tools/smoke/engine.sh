#!/bin/bash
# Runs Docker's engine out of the tree of trees.sh, in namespaces of its own, until it is ended by its process id
# (FOLDER/dockerd.pid). The machine itself gets no engine, no firewall rule and no address.
#
#   tools/smoke/engine.sh build FOLDER    on the machine's network: builds reach the package registries
#   tools/smoke/engine.sh run FOLDER      in a network namespace `smoke`: every address of every container lies in it
#
# Both use one data root, one at a time. nsenter and not `ip netns exec`, which mounts a new /sys and hides the cgroups.
set -euo pipefail
mode=${1:?usage: engine.sh build|run FOLDER}
folder=$(realpath "${2:?usage: engine.sh build|run FOLDER}")
if [ ! -d "$folder/engine" ]; then
    mkdir "$folder/engine"
    tar -C "$folder/engine" -xf "$folder/trees/engine.tar"
    mkdir -p "$folder/config/cli-plugins"
    cp "$folder"/engine/usr/libexec/docker/cli-plugins/docker-* "$folder/config/cli-plugins/"
fi
if [ "$mode" = build ]; then
    inside=() arguments=(--bridge=none --iptables=false --ip6tables=false)
else
    ip netns add smoke 2>/dev/null || true
    ip -n smoke link set lo up
    inside=(nsenter --net=/run/netns/smoke) arguments=()
fi
exec "${inside[@]}" unshare --mount --propagation private bash -c '
    set -e
    folder=$1 root=$1/engine
    shift
    mount --bind "$root" "$root"
    for each in proc sys dev; do mount --rbind /$each "$root/$each"; done
    mkdir -p "$root$folder" "$root/.old"
    mount --bind "$folder" "$root$folder"
    mount -t tmpfs tmpfs "$root/run"
    cd "$root"
    pivot_root . .old
    umount -l /.old
    exec dockerd --data-root "$folder/docker" --exec-root /run/docker -H "unix://$folder/docker.sock" \
        --pidfile "$folder/dockerd.pid" "$@"' engine "$folder" "${arguments[@]}"
