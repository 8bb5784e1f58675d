#!/bin/sh
# Installs what the tests and the demo need from Debian or Ubuntu. Does
# nothing, and takes no time, when all of it is there.
set -eu

packages="
	acl attr e2fsprogs etcd-server fio fuse3 gcc git iperf3 iproute2 libamdhip64-5 libamdhip64-dev libc6-dev libucx-dev make mypy
	ocl-icd-libopencl1 opencl-headers pocl-opencl-icd prometheus
	python3-fsspec python3-numpy python3-pip python3-pytest python3-redis python3-setuptools python3-torch python3-wheel
	redis-server rsync sqlite3 tar tmux ucx-utils util-linux
"

installed() {
	dpkg-query -W -f '${db:Status-Status}\n' "$1" 2>/dev/null | grep -qx installed
}

if ! command -v dpkg-query >/dev/null; then
	echo "deps: this is no Debian; what is needed by its names there:" $packages >&2
	exit 0
fi

missing=
for p in $packages; do
	installed "$p" || missing="$missing $p"
done
[ -n "$missing" ] || exit 0

if [ "$(id -u)" -eq 0 ]; then
	as_root=
elif command -v sudo >/dev/null && sudo -n true 2>/dev/null; then
	as_root=sudo
else
	echo "deps: missing:$missing; install them as root: apt-get install$missing" >&2
	exit 1
fi

# The packages would start an etcd, a Prometheus and a Redis, and with each boot again. The tests
# start their own; one that was here before is somebody's, and is left alone.
hold() {
	[ -d /run/systemd/system ] || return 0
	case " $missing " in *" etcd-server "*) $as_root systemctl "$@" etcd.service ;; esac
	case " $missing " in *" prometheus "*) $as_root systemctl "$@" prometheus.service ;; esac
	case " $missing " in *" redis-server "*) $as_root systemctl "$@" redis-server.service ;; esac
}

install_missing() {
	# env, because sudo drops what is set outside of it. In RUNLEVEL 1 no
	# service is started where there is no systemd.
	$as_root env DEBIAN_FRONTEND=noninteractive apt-get -qq update &&
		$as_root env DEBIAN_FRONTEND=noninteractive RUNLEVEL=1 apt-get -qq install \
			-y --no-install-recommends -o DPkg::Lock::Timeout=120 $missing
}

echo "deps: installing$missing"
hold mask --quiet
install_missing || {
	echo "deps: trying once more" >&2
	install_missing
}
hold unmask --quiet
hold disable --quiet
