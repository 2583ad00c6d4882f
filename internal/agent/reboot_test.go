package agent

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/greylag/greylag/pkg/cluster"
)

// TestRebootOfANode: the program runs once for a request, when no task is left, and only for the present boot. Its failure
// is reported until the request ends or is repeated.
func TestRebootOfANode(t *testing.T) {
	t.Parallel()
	n := newNode(t, "process", func(n *node) {
		n.cfg.Reboot = []string{program(t, n, "#!/bin/sh\necho run >> "+n.dir+"/runs\necho no permission\nexit 3\n")}
	})
	runs := func() int {
		data, _ := os.ReadFile(filepath.Join(n.dir, "runs")) // it need not exist
		return strings.Count(string(data), "run")
	}
	n.want(at(1, 1), "#!/bin/sh\nuntil [ -e "+n.home+"/go ]; do sleep 0.02; done\n", nil)
	n.reach(at(1, 1), "started")
	n.change(func() { n.reboot = "another boot" })
	n.change(func() { n.reboot = n.boots[0] })
	n.change(func() { n.reports = nil })
	n.until("a report", func() bool { return len(n.reports) > 0 })
	if runs() != 0 {
		t.Errorf("it ran while a task ran: %v", n.last(at(1, 1)))
	}
	touch(t, n, "go")
	n.settled(at(1, 1))
	n.until("a condition", func() bool {
		return strings.Contains(n.condition(cluster.CauseReboot), "notice 0: ") && strings.Contains(n.condition(cluster.CauseReboot), "failed: exit status 3 no permission; see ") && strings.HasSuffix(n.condition(cluster.CauseReboot), "reboot.log; correct the cause and repeat gctl reboot n1")
	})
	n.change(func() { n.requested++ }) // the request is repeated
	n.until("a second run", func() bool { return runs() == 2 && n.condition(cluster.CauseReboot) != "" })
	n.change(func() { n.reboot = "" })
	n.until("no condition", func() bool { return n.condition(cluster.CauseReboot) == "" })
	if runs() != 2 {
		t.Errorf("%d runs", runs())
	}
}
