#!/bin/sh
# Runs a job on a machine that is controller and node, while the packages are upgraded, downgraded,
# removed and installed again, and services are restarted, stopped and killed. /srv/greylag has the
# repositories of the previous and the current version. The last line is "jobs survive", or the script
# fails.
set -eu
export DEBIAN_FRONTEND=noninteractive

fail() { echo "failed: $*" >&2; exit 1; }

# use VERSION: apt reads that repository.
use() {
  echo "deb [signed-by=/srv/greylag/$1/greylag.asc] file:/srv/greylag/$1/deb stable main" >/etc/apt/sources.list.d/greylag.list
  apt-get -q update >/dev/null
}

installed() { dpkg-query -W -f '${Version}' greylag-node; }

# eventually SECONDS COMMAND: the command succeeds within that time.
eventually() {
  left=$1
  shift
  until "$@"; do
    [ "$left" -gt 0 ] || return 1
    left=$((left - 1))
    sleep 1
  done
}

runs() {
  gctl show job "$job" --json >/tmp/job 2>/dev/null && grep -q '"state": *"RUNNING"' /tmp/job && grep -q '"restarts": *0' /tmp/job &&
    gctl info --json 2>/dev/null | grep -qi '"mixed"\|"allocated"'
}

# survives WHAT: the job runs in the same attempt and the same process, and its node reports.
survives() {
  eventually 90 runs || fail "$1: the job does not run: $(cat /tmp/job; gctl info)"
  kill -0 "$process" || fail "$1: the job's process is gone"
  echo "survived: $1"
}

# waits finds the process of the job that waits.
waits() { sleeping=$(pgrep -u alice -x -o sleep) && process=$(ps -o ppid= -p "$sleeping"); }

ended() { gctl show job "$job" >/tmp/job && grep -q FAILED /tmp/job; }

use previous
apt-get -q install greylag
gctl init --with-node
before=$(installed)
echo '# edited' >>/etc/greylag/gnoded.toml
job=$(su alice -c "cd && gsubmit --parsable --output out --wrap 'while [ ! -e go ]; do sleep 1; done; echo finished; exit 7'")
eventually 90 runs || fail "the job does not start: $(gctl why "$job")"
eventually 60 waits || fail "no process of the job: $(cat /tmp/job)"

use current
apt-get -q dist-upgrade
after=$(installed)
[ "$before" != "$after" ] || fail "both versions are $after"
gctl cluster status | grep -q "$after" || fail "gctld was not restarted: $(gctl cluster status)"
[ "$(tail -1 /etc/greylag/gnoded.toml)" = '# edited' ] || fail "the upgrade changed an edited file"
survives upgrade
for command in 'systemctl restart gnoded' 'systemctl restart gctld gauthd' 'systemctl stop gnoded && systemctl start gnoded' \
  'systemctl kill -s KILL --kill-who=main gnoded' 'systemctl kill -s KILL --kill-who=main gctld' \
  'systemctl kill -s ABRT --kill-who=main gnoded' 'systemctl daemon-reexec' 'systemctl restart containerd'; do
  sh -c "$command" || fail "$command"
  survives "$command"
done

use previous
apt-get -q install --allow-downgrades greylag="$before" greylag-common="$before" greylag-client="$before" greylag-controller="$before" greylag-node="$before"
survives downgrade
apt-get -q remove greylag-node >/tmp/removal 2>&1
grep -q 'jobs keep running' /tmp/removal || fail "the removal does not say that jobs keep running: $(cat /tmp/removal)"
kill -0 "$process" || fail "the removal ended the job"
! systemctl --quiet is-active gnoded || fail "the removal left gnoded running"
apt-get -q install greylag-node="$before"
systemctl enable --now gnoded
survives "removal and installation"

touch /home/alice/go
eventually 60 ended || fail "the job does not end: $(cat /tmp/job)"
[ "$(cat /home/alice/out)" = finished ] || fail "the job wrote: $(cat /home/alice/out)"
apt-get -q purge greylag greylag-node greylag-controller greylag-client greylag-common >/tmp/purge 2>&1
for dir in /var/lib/greylag/controller /var/lib/greylag/node /var/lib/greylag/auth; do
  grep -q "data in $dir was kept" /tmp/purge || fail "the purge does not say that it kept $dir: $(cat /tmp/purge)"
  [ -d $dir ] || fail "the purge removed $dir"
done
[ ! -e /etc/greylag ] || fail "the purge left $(ls /etc/greylag/*)"
echo "jobs survive"
