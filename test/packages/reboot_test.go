package packages

import (
	"strings"
	"testing"
)

// reboot ends the machine like a power failure and boots it again.
func (m *machine) reboot() {
	m.t.Helper()
	m.stop()
	m.start()
	m.booted()
}

// shows waits until gctl show job has some words.
func (m *machine) shows(job, words string) {
	m.t.Helper()
	out := ""
	m.until("job "+job+" shows "+words, func() (done bool, err error) {
		out, err = m.try("gctl show job " + job)
		return strings.Contains(out, words), err
	})
}

// TestReboots has a job on a node while its controller reboots and is restored from a backup on a host
// without any file of Greylag, as docs/recovery.md says. Then the node loses power in the middle of an upgrade: the upgrade is
// completed, and the job runs again.
func TestReboots(t *testing.T) {
	t.Parallel()
	machines := site(t, "rebooted", "worker")
	ctl, node := machines[0], machines[1]
	for _, m := range machines {
		m.uses("previous")
	}
	ctl.run("apt-get install greylag-controller")
	join := joinLine(t, ctl.run("gctl init"))
	node.run("apt-get install greylag-node")
	node.run(join)
	job := ctl.run("su alice -c 'cd && gsubmit --parsable --output none --wrap \"while [ ! -e /tmp/go ]; do sleep 1; done\"'")
	var process string
	node.until("the job runs", func() (bool, error) {
		out, err := node.try("ps -o ppid= -p $(pgrep -u alice -x -o sleep)")
		process = out
		return err == nil, err
	})
	survives := func(what string) {
		t.Helper()
		ctl.shows(job, "RUNNING")
		if out, err := node.try("kill -0 " + process); err != nil || strings.Contains(ctl.run("gctl show job "+job), "restart") {
			t.Fatalf("%s: the job does not run as before: %s\n%s", what, out, ctl.run("gctl show job "+job))
		}
	}

	ctl.reboot()
	survives("reboot of the controller")

	ctl.run("gctl cluster snapshot -o /root/backup && systemctl stop gctld gauthd")
	ctl.run("mkdir /root/old && mv /var/lib/greylag/controller /var/lib/greylag/auth /etc/greylag /root/old/ && systemd-tmpfiles --create")
	ctl.run("install -d -m 0700 -o greylag -g greylag /var/lib/greylag/controller && cp -a /root/old/controller/pki /var/lib/greylag/controller/")
	ctl.run("gctl init --restore /root/backup")
	survives("restore of a backup")
	if out := ctl.run("gctl cluster status"); !strings.Contains(out, "restored") {
		t.Errorf("gctl cluster status does not show the restore:\n%s", out)
	}

	node.run("dpkg --unpack $(find /srv/greylag/current/deb -name 'greylag-common_*' -o -name 'greylag-client_*' -o -name 'greylag-node_*')")
	node.reboot()
	node.run("dpkg --configure -a")
	ctl.shows(job, "1 restart")
	ctl.shows(job, "RUNNING")
	node.run("gctl doctor")
}
