package packages

import (
	"strings"
	"testing"
)

// TestRPM installs, upgrades and removes the RPM packages with their scripts, by Debian's rpm: no root of
// a RHEL-like system is made. A job survives all of it.
func TestRPM(t *testing.T) {
	t.Parallel()
	needs(t, "rpm")
	m := site(t, "rpm")[0]
	m.run("rpm --import /srv/greylag/previous/greylag.asc; rpm -i --nodeps /srv/greylag/previous/rpm/*.rpm")
	for _, unit := range []string{"gctld", "gnoded", "gauthd"} {
		if out, err := m.try("systemctl is-active " + unit + " || systemctl is-enabled " + unit); err == nil {
			t.Errorf("the installation started or enabled %s: %s", unit, out)
		}
	}
	if out := m.run("stat -c '%U %a' /var/lib/greylag/controller /etc/greylag/client.d"); out != "greylag 700\ngreylag 775" {
		t.Errorf("directories: %s", out)
	}
	m.run("gctl init --with-node")
	m.run("echo '# edited' >>/etc/greylag/gnoded.toml")
	j := m.startsJob()

	before := m.run("rpm -q --qf '%{VERSION}' greylag-node")
	m.run("rpm --import /srv/greylag/current/greylag.asc; rpm -U --nodeps /srv/greylag/current/rpm/*.rpm")
	j.survives("upgrade")
	after := m.run("rpm -q --qf '%{VERSION}' greylag-node")
	if before == after || !strings.Contains(m.run("gctl cluster status"), after) || m.run("tail -1 /etc/greylag/gnoded.toml") != "# edited" {
		t.Errorf("from version %s to %s:\n%s", before, after, m.run("gctl cluster status"))
	}
	out := m.run("rpm -e --nodeps greylag greylag-node 2>&1")
	if !strings.Contains(out, "jobs keep running") {
		t.Errorf("the removal does not say that jobs keep running: %s", out)
	}
	m.run("kill -0 " + j.process)
	m.run("rpm -i --nodeps /srv/greylag/current/rpm/greylag-node-[0-9]*.rpm && systemctl enable --now gnoded")
	j.survives("removal and installation")
	_, printed, _ := strings.Cut(m.run("rpm -e --nodeps greylag-node 2>&1"), "to end them: ")
	m.run(printed)
	m.until("the command that the removal prints ends the job", func() (bool, error) {
		_, err := m.try("kill -0 " + j.process)
		return err != nil, nil
	})
	m.run("rpm -e --nodeps greylag-controller greylag-client greylag-common; ls /etc/greylag/gctld.toml /var/lib/greylag/controller/raft/raft.db")
}
