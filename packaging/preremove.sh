#!/bin/sh
# Ends the services before the program is removed, and not on an upgrade: device
# memory would be lost. dpkg says "remove", rpm 0.
case "$1" in
remove | 0)
	[ ! -d /run/systemd/system ] || systemctl stop hmcfs.service 'hmcfs@*.service' || true
	;;
esac
