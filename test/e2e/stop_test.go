package e2e

import (
	"regexp"
	"strings"
	"testing"
)

// TestACleanStopIsQuiet checks that a daemon that is stopped with SIGTERM logs no error of its own
// connections, and last of all that it has stopped.
func TestACleanStopIsQuiet(t *testing.T) {
	t.Parallel()
	s := newSite(t, three())
	s.ends(s.gsubmit(tester, s.script("true")), "COMPLETED")
	ctx := limited(t, hang)
	leader := s.leader(ctx)
	order := append(s.others(leader), leader)
	s.must(s.Nodes()[0].Stop())
	quiet(t, "gnoded", s.Nodes()[0].LogTail(1<<20))
	for _, ctl := range order {
		before := len(ctl.LogTail(1 << 20))
		s.must(ctl.Stop())
		quiet(t, ctl.Name, ctl.LogTail(1 << 20)[before:])
	}
}

var connectionErrors = regexp.MustCompile(`(?m)^.*(err=<nil>|closed network connection).*$`)

func quiet(t *testing.T, name, log string) {
	t.Helper()
	for _, line := range connectionErrors.FindAllString(log, -1) {
		t.Errorf("%s: %s", name, line)
	}
	lines := strings.Split(strings.TrimSpace(log), "\n")
	if last := lines[len(lines)-1]; !strings.Contains(last, "msg=stopped") {
		t.Errorf("%s: the last line is %s", name, last)
	}
}
