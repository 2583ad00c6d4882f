package packages

import (
	_ "embed"
	"strings"
	"testing"
)

//go:embed survive.sh
var surviveScript string

// TestJobsSurvive runs survive.sh on a machine.
func TestJobsSurvive(t *testing.T) {
	t.Parallel()
	m := site(t, "survivor")[0]
	m.write("/root/survive.sh", surviveScript)
	out, err := m.try("sh /root/survive.sh")
	if err != nil || !strings.Contains(out, "\njobs survive\n") {
		t.Fatalf("%v\n%s", err, out)
	}
}

// running is a job that waits for a file, and its process.
type running struct {
	*machine
	id, process string
}

// startsJob starts a job of alice on a machine.
func (m *machine) startsJob() running {
	m.t.Helper()
	j := running{machine: m, id: m.run("su alice -c 'cd && gsubmit --parsable --output out-%j --wrap \"while [ ! -e go ]; do sleep 1; done\"'")}
	m.until("the job runs", func() (bool, error) {
		out, err := m.try("ps -o ppid= -p $(pgrep -u alice -x -o sleep)")
		j.process = out
		return err == nil, err
	})
	return j
}

// survives checks that the job still runs in the same attempt and process.
func (j running) survives(what string) {
	j.t.Helper()
	j.until(what+": the job runs", func() (bool, error) {
		job, err := j.try("gctl show job " + j.id)
		return strings.Contains(job, "RUNNING"), err
	})
	if out, err := j.try("kill -0 " + j.process); err != nil {
		j.t.Fatalf("%s: the job's process is gone: %s", what, out)
	}
}
