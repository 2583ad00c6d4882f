package e2e

import (
	"bufio"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/greylag/greylag/internal/image/ociimage"
	"github.com/greylag/greylag/test/cluster"
)

// inJob is a script that uses the commands from inside its job: the first attempt shows, submits,
// cancels another job and requeues itself, the second cancels itself.
const inJob = `set -e
log=%[1]s/log-%[2]s
id=$SLURM_JOB_ID
if [ "$GREYLAG_ATTEMPT" = 1 ]; then
  gctl show job $id --json | grep -q '"user": "daemon"' && echo shown >>$log
  gqueue --noheader | grep -q " daemon " && echo queued >>$log
  gctl doctor | grep -q 'inside a job: calls go through' && echo examined >>$log
  next=$(gsubmit %[3]s --dependency=afterany:$id --output=%[1]s/next-%[2]s --wrap 'echo $SLURM_JOB_ID ${SLURM_RESTART_COUNT:-new} $GREYLAG_SOCKET')
  held=$(gsubmit %[3]s --hold --wrap true)
  gcancel $held && echo cancelled >>$log
  echo $next $held >%[1]s/ids-%[2]s
  trap 'gctl requeue $id; sleep 60' USR1
  kill -USR1 $$
  exit 0
fi
gcancel $id
sleep 60
`

// TestCommandsInJobs uses the commands inside jobs, which act as the job's user for as long as the
// attempt runs.
func TestCommandsInJobs(t *testing.T) {
	t.Parallel()
	s := newSite(t, cluster.Options{Nodes: 1, GPUs: 4, CPUs: 16, Memory: "8GiB", Tmpfs: true, Policy: quickKill()})
	needsRoot(t, "jobs of several users")
	t.Run("on the host", func(t *testing.T) { commandsOnHost(s.with(t)) })
	t.Run("in an image", func(t *testing.T) { commandsInImage(s.with(t)) })
	t.Run("of others", func(t *testing.T) { socketOfAnother(s.with(t)) })
	t.Run("after the end", func(t *testing.T) { socketAfterEnd(s.with(t)) })
	t.Run("across a restart of gnoded", func(t *testing.T) { socketAcrossRestart(s.with(t)) })
	s.idle(limited(t, hang))
}

// programs copies the commands to where jobs see them, as packages install them, and returns a line
// that adds them to PATH.
func (s *site) programs() string {
	s.t.Helper()
	dir := filepath.Join(s.Work, "bin")
	s.must(os.MkdirAll(dir, 0o755))
	for _, name := range []string{"gsubmit", "gqueue", "gcancel", "grun", "gctl", "gslurm"} {
		from := s.Command(s.t.Context(), name).Path
		data, err := os.ReadFile(from)
		s.must(err)
		if _, err := os.Stat(filepath.Join(dir, name)); err != nil {
			s.must(os.WriteFile(filepath.Join(dir, name), data, 0o755))
		}
	}
	return "PATH=" + dir + ":$PATH\n"
}

// inJobScript writes the script for one kind of job.
func (s *site) inJobScript(interpreter, before, kind string) string {
	s.t.Helper()
	path := filepath.Join(s.Work, "injob-"+kind+".sh")
	text := "#!" + interpreter + "\n" + before + fmt.Sprintf(inJob, s.Work, kind, strings.Join(small(), " "))
	s.must(os.WriteFile(path, []byte(text), 0o755))
	return path
}

// usedCommands checks the actions of a job of inJobScript.
func (s *site) usedCommands(id uint64, kind string) {
	s.t.Helper()
	job := s.ends(id, "CANCELLED")
	if got, want := s.output("log-%s", kind), "shown\nqueued\nexamined\ncancelled\n"; got != want || job.Attempt != 2 {
		s.t.Errorf("attempt %d; the commands gave %q, want %q\n%s", job.Attempt, got, want, s.output("greylag-%d.out", id))
	}
	var next, held uint64
	_, err := fmt.Sscan(s.output("ids-%s", kind), &next, &held)
	s.must(err)
	s.ends(held, "CANCELLED")
	if job := s.ends(next, "COMPLETED"); job.User != "daemon" {
		s.t.Errorf("a job that was submitted from a job of daemon is of %s", job.User)
	}
	got := strings.Fields(s.output("next-%s", kind))
	if len(got) != 3 || got[0] != fmt.Sprint(next) || got[1] != "new" || got[2] == "" {
		s.t.Errorf("the submitted job found %q in its environment, want its own", got)
	}
	audit := s.ok(tester, "gctl", "audit", "--user", "daemon")
	if from := fmt.Sprintf("job %d.1 on %s", id, s.Node(0).Name); !strings.Contains(audit, from) {
		s.t.Errorf("the audit log does not say %q: %s", from, audit)
	}
}

func commandsOnHost(s *site) {
	id := s.gsubmit(alice, s.inJobScript("/bin/bash", s.programs(), "host"))
	s.usedCommands(id, "host")
}

func commandsInImage(s *site) {
	s.needsContainers("images")
	archive := filepath.Join(s.Work, "commands.tar")
	image, err := ociimage.Unix()
	s.must(err)
	_, err = ociimage.WriteFile(archive, image)
	s.must(err)
	id := s.gsubmit(alice, "--image=oci-archive:"+archive, s.inJobScript("/bin/sh", "", "image"))
	s.usedCommands(id, "image")
}

// socketOf waits for the socket of a job's first attempt.
func (s *site) socketOf(id uint64) (path string) {
	s.t.Helper()
	s.until("the socket of the job", func() (bool, error) {
		err := filepath.WalkDir(filepath.Join(s.Dir, "n1"), func(at string, d fs.DirEntry, err error) error {
			switch {
			case err != nil:
				return nil // it may be gone by now
			case d.Name() == "host":
				return filepath.SkipDir
			case strings.HasSuffix(at, fmt.Sprintf("/sockets/%d.1/socket", id)):
				path = at
				return filepath.SkipAll
			}
			return nil
		})
		return path != "", err
	})
	return path
}

// socketOfAnother tries the socket of a job as other users, including root.
func socketOfAnother(s *site) {
	gate := s.gate("others")
	id := s.gsubmit(alice, s.script(gate.then("exit 0")))
	s.await(s.t.Context(), id, "RUNNING")
	path := s.socketOf(id)
	for _, as := range []account{bob, tester} {
		cmd := s.Command(s.t.Context(), "gcancel", ref(id))
		cmd.Env = append(cmd.Env, "GREYLAG_SOCKET="+path)
		if as != tester {
			cluster.As(cmd, uint32(as), uint32(as))
		}
		if result := s.finish(cmd); result.Exit == 0 || as == tester && (result.Exit != 4 || !strings.Contains(result.Stderr, "job's user")) {
			s.t.Errorf("user %d on the socket of another's job: status %d, %s", as, result.Exit, result.Stderr)
		}
	}
	gate.open()
	s.ends(id, "COMPLETED")
}

// ask makes one call on a connection, and returns its status.
func ask(conn net.Conn) (int, error) {
	_ = conn.SetDeadline(time.Now().Add(hang))
	const body = "{}"
	if _, err := fmt.Fprintf(conn, "POST /greylag.v1.ClusterService/GetInfo HTTP/1.1\r\nHost: gnoded\r\n"+
		"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", len(body), body); err != nil {
		return 0, err
	}
	response, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		return 0, err
	}
	defer response.Body.Close()
	_, err = io.Copy(io.Discard, response.Body)
	return response.StatusCode, err
}

// socketAfterEnd keeps a connection open for longer than its attempt runs.
func socketAfterEnd(s *site) {
	gate := s.gate("kept")
	id := s.gsubmit(tester, s.script(gate.then("exit 0")))
	s.await(s.t.Context(), id, "RUNNING")
	path := s.socketOf(id)
	conn, err := net.Dial("unix", path)
	s.must(err)
	defer conn.Close()
	if status, err := ask(conn); status != http.StatusOK || err != nil {
		s.t.Fatalf("while the job runs: %d, %v", status, err)
	}
	gate.open()
	s.ends(id, "COMPLETED")
	if status, err := ask(conn); err == nil && status != http.StatusForbidden {
		s.t.Errorf("on a connection of an attempt that has ended: %d", status)
	}
	s.until("the socket is gone", func() (bool, error) {
		_, err := os.Stat(path)
		return os.IsNotExist(err), nil
	})
}

// socketAcrossRestart replaces gnoded while a job runs, which is not affected.
func socketAcrossRestart(s *site) {
	gate := s.gate("restart")
	id := s.gsubmit(alice, s.script(s.programs()+"until [ -e "+s.Work+"/gate-restart ]; do sleep 0.05; done; gctl show job $SLURM_JOB_ID"))
	s.await(s.t.Context(), id, "RUNNING")
	s.must(s.Node(0).Kill())
	s.must(s.Node(0).Start())
	gate.open()
	if job := s.ends(id, "COMPLETED"); job.Attempt != 1 {
		s.t.Errorf("it ended in attempt %d", job.Attempt)
	}
}
