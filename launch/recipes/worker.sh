#!/usr/bin/env bash
# Prepares an image for the MPI operator: a user tfm (1000) whose sshd starts without root, so on a port above 1023, and a client that trusts
# the job's pods.
set -euo pipefail
id 1000 > /dev/null 2>&1 && userdel "$(id -un 1000)"
useradd --create-home --uid 1000 --shell /bin/bash tfm
sed -i 's/[ #]*StrictHostKeyChecking.*/    StrictHostKeyChecking no/; s/^[ #]*Port .*/    Port 2222/
        $ a\    UserKnownHostsFile /dev/null' /etc/ssh/ssh_config
cat > /home/tfm/.sshd_config <<'CONFIG'
Port 2222
PidFile /home/tfm/sshd.pid
HostKey ~/.ssh/id_rsa
StrictModes no
SetEnv PATH=/opt/tfm/bin:/usr/local/bin:/usr/bin:/bin
CONFIG
chown tfm:tfm /home/tfm/.sshd_config
