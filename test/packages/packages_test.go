package packages

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// uses makes apt of a machine read one of the two repositories.
func (m *machine) uses(repository string) {
	m.t.Helper()
	m.write("/etc/apt/sources.list.d/greylag.list", fmt.Sprintf("deb [signed-by=/srv/greylag/%[1]s/greylag.asc] file:/srv/greylag/%[1]s/deb stable main\n", repository))
	m.run("apt-get -q update")
}

// site boots the machines of a cluster, in one network.
func site(t *testing.T, names ...string) []*machine {
	needs(t, "systemd-nspawn", "dh", "reprepro", "createrepo_c", "rpmbuild", "gpg", "ip", "nsenter", "unshare")
	repositories(t)
	n := newNetwork(t)
	addresses := map[string]string{}
	for i, name := range names {
		addresses[name] = fmt.Sprintf("%s.%d", n.subnet, i+1)
	}
	all := make([]*machine, len(names))
	for i, name := range names {
		all[i] = n.prepare(t, name, i+1, addresses)
		all[i].start()
	}
	for _, m := range all {
		m.booted()
	}
	return all
}

// joinLine returns the line of gctl init's output with which a node joins.
func joinLine(t *testing.T, out string) string {
	t.Helper()
	for line := range strings.Lines(out) {
		if strings.HasPrefix(line, "gctl join ") {
			return strings.TrimSpace(line)
		}
	}
	t.Fatalf("gctl init printed no command for nodes:\n%s", out)
	return ""
}

// firstHour is the time within which three nodes run their first job, from the first command on.
const firstHour = 120 * time.Second

// TestFirstHour installs a controller and three nodes with two commands on each machine, and runs a job
// on all nodes.
func TestFirstHour(t *testing.T) {
	machines := site(t, "ctl1", "n1", "n2", "n3")
	for _, m := range machines {
		m.uses("current")
	}
	ctl, nodes := machines[0], machines[1:]
	began := time.Now()
	ctl.types("apt-get install greylag-controller")
	join := joinLine(t, ctl.types("gctl init"))
	for _, node := range nodes {
		node.types("apt-get install greylag-node")
		node.types(join)
	}
	out := ctl.run("su alice -c 'cd && gsubmit --nodes 3 --parsable --wait --wrap hostname'")
	took := time.Since(began)
	t.Logf("three nodes from packages to the first finished job: %.0f s; job %s", took.Seconds(), out)
	if took > firstHour {
		t.Errorf("it took %s, want at most %s", took, firstHour)
	}
	for _, m := range machines {
		if len(m.typed) != 2 {
			t.Errorf("%s needed %q, want two commands", m.name, m.typed)
		}
		if out, err := m.try("gctl doctor"); err != nil {
			t.Errorf("%s: gctl doctor: %v\n%s", m.name, err, out)
		}
	}
	if user := ctl.run("ps -o user= -C gctld"); user != "greylag" {
		t.Errorf("gctld runs as %s", user)
	}
}
