package packages

import (
	"strings"
	"testing"
)

// TestFaultsOfUpgrade upgrades a machine whose configuration is faulty, then one whose disk is full, and
// installs a version that cannot read the data. Each time the running version and its job remain.
func TestFaultsOfUpgrade(t *testing.T) {
	t.Parallel()
	m := site(t, "faulty")[0]
	m.uses("previous")
	m.run("apt-get install greylag")
	m.run("gctl init --with-node")
	version := m.run("dpkg-query -W -f '${Version}' greylag-node")
	j := m.startsJob()
	remains := func(what, out string, says ...string) {
		t.Helper()
		for _, words := range says {
			if !strings.Contains(out, words) {
				t.Errorf("%s: the output lacks %q:\n%s", what, words, out)
			}
		}
		j.survives(what)
	}

	m.uses("current")
	m.run("fallocate -l 100G /var/cache/full 2>/dev/null; cat /dev/zero >/var/cache/full 2>/dev/null; true")
	out, err := m.try("apt-get -o Debug::NoLocking=1 dist-upgrade")
	m.run("rm /var/cache/full")
	if err == nil {
		t.Error("an upgrade on a full disk succeeded")
	}
	remains("full disk", out, "No space left on device")

	m.run("apt-get -f install; dpkg --configure -a")
	m.run("echo 'nonsense = 1' >>/etc/greylag/gnoded.toml")
	started := m.run("systemctl show -p ExecMainStartTimestampMonotonic gnoded")
	out = m.run("apt-get dist-upgrade; apt-get install --reinstall greylag-node")
	remains("unknown key", out, "gnoded.toml", "nonsense", "still runs the previous version", "systemctl restart gnoded")
	if now := m.run("systemctl show -p ExecMainStartTimestampMonotonic gnoded"); now != started {
		t.Errorf("gnoded was restarted: %s, then %s", started, now)
	}
	m.run("sed -i '/nonsense/d' /etc/greylag/gnoded.toml && systemctl restart gnoded")
	j.survives("the corrected file")

	m.uses("previous")
	m.run(`sed -i 's/"Form": *1/"Form": 9/' /var/lib/greylag/controller/raft/identity.json`)
	out, err = m.try("apt-get install --allow-downgrades greylag=" + version + " greylag-common=" + version + " greylag-client=" + version + " greylag-controller=" + version + " greylag-node=" + version)
	if err == nil {
		t.Error("a version that cannot read the data was installed")
	}
	m.run(`sed -i 's/"Form": *9/"Form": 1/' /var/lib/greylag/controller/raft/identity.json`)
	remains("downgrade below the data", out, "has format 9", "the installed version stays")
}

// TestWithoutContainerd installs a node on a machine without containerd and with Slurm's commands.
func TestWithoutContainerd(t *testing.T) {
	t.Parallel()
	m := site(t, "bare")[0]
	m.uses("current")
	m.run("for c in sbatch squeue srun scancel; do printf '#!/bin/sh\\necho slurm\\n' >/usr/bin/$c; chmod +x /usr/bin/$c; done")
	m.run("systemctl stop containerd; rm -f /usr/bin/containerd")
	m.run("apt-get install greylag")
	m.run("gctl init --with-node")
	out, err := m.try("gctl doctor")
	if err == nil || !strings.Contains(out, "containerd") {
		t.Errorf("gctl doctor does not name containerd: %v\n%s", err, out)
	}
	if m.run("sbatch") != "slurm" {
		t.Error("the packages changed a command of Slurm")
	}
}
