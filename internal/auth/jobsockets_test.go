package auth

import (
	"bufio"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/greylag/greylag/pkg/cluster"
)

// echoFor answers with the attempt of a call.
type echoFor struct{}

func (echoFor) ForwardFor(w http.ResponseWriter, r *http.Request, a Attempt, _ uint32) {
	w.Header().Set("Test-Attempt", a.String())
	_, _ = io.Copy(w, r.Body)
}

// jobSockets serves the socket of attempt 12.1 for uid.
func jobSockets(t *testing.T, dir string, uid uint32) (s *JobSockets, path string) {
	t.Helper()
	s = NewJobSockets(dir, echoFor{}, slog.New(slog.DiscardHandler))
	t.Cleanup(s.Stop)
	folder, err := s.Open(Attempt{12, 1}, uid)
	if err != nil {
		t.Fatal(err)
	}
	return s, filepath.Join(folder, SocketFile)
}

// called makes one call and returns its status, its attempt, and the answer.
func called(t *testing.T, conn net.Conn, head string) (status int, attempt, text string) {
	t.Helper()
	_ = conn.SetDeadline(time.Now().Add(time.Minute))
	_, _ = io.WriteString(conn, head+"\r\nHost: x\r\nContent-Length: 0\r\n\r\n")
	response, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		return 0, "", err.Error()
	}
	defer response.Body.Close()
	body, _ := io.ReadAll(response.Body)
	return response.StatusCode, response.Header.Get("Test-Attempt"), string(body)
}

func dial(t *testing.T, path string) net.Conn {
	t.Helper()
	conn, err := net.Dial("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

const anyCall = "POST /greylag.v1.JobService/ListJobs HTTP/1.1"

func TestJobSocketNamesTheAttempt(t *testing.T) {
	_, path := jobSockets(t, t.TempDir(), uint32(os.Getuid()))
	conn := dial(t, path)
	for range 2 {
		// What a command says about the attempt does not count.
		if status, attempt, text := called(t, conn, anyCall+"\r\n"+AttemptHeader+": 13.1"); status != http.StatusOK || attempt != "12.1" {
			t.Errorf("%d for %q: %s", status, attempt, text)
		}
	}
	for head, want := range map[string]int{
		"POST /metrics HTTP/1.1":                         http.StatusNotFound,
		"GET /greylag.v1.JobService/ListJobs HTTP/1.1":   http.StatusNotFound,
		anyCall + "\r\nAuthorization: Bearer some-token": http.StatusBadRequest,
	} {
		if status, attempt, _ := called(t, dial(t, path), head); status != want || attempt != "" {
			t.Errorf("%q: %d for %q, want %d", head, status, attempt, want)
		}
	}
}

// TestJobSocketIsForItsUser checks that not even root uses the socket of another user's job.
func TestJobSocketIsForItsUser(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: the kernel lets no other user connect")
	}
	_, path := jobSockets(t, t.TempDir(), 1000)
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
	status, attempt, text := called(t, dial(t, path), anyCall)
	if status != http.StatusForbidden || attempt != "" || !strings.Contains(text, "job's user, not uid 0") {
		t.Errorf("root on the socket of user 1000: %d for %q, %s", status, attempt, text)
	}
}

// TestJobSocketEndsWithItsTask checks that open connections end with the task.
func TestJobSocketEndsWithItsTask(t *testing.T) {
	s, path := jobSockets(t, t.TempDir(), uint32(os.Getuid()))
	conn := dial(t, path)
	if status, _, text := called(t, conn, anyCall); status != http.StatusOK {
		t.Fatal(status, text)
	}
	s.Close(Attempt{12, 1})
	if status, attempt, _ := called(t, conn, anyCall); status != 0 {
		t.Errorf("answered %d for %q after the end", status, attempt)
	}
	if _, err := os.Stat(filepath.Dir(path)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the folder is there yet: %v", err)
	}
	s.Close(Attempt{12, 1})
}

// TestJobSocketsOfTheNextDaemon checks that a daemon serves the folder that the task already sees.
func TestJobSocketsOfTheNextDaemon(t *testing.T) {
	dir, uid := t.TempDir(), uint32(os.Getuid())
	first, path := jobSockets(t, dir, uid)
	if _, err := first.Open(Attempt{13, 2}, uid); err != nil {
		t.Fatal(err)
	}
	before, err := os.Stat(filepath.Dir(path))
	if err != nil {
		t.Fatal(err)
	}
	first.Stop()
	next, path := jobSockets(t, dir, uid)
	after, err := os.Stat(filepath.Dir(path))
	if err != nil || !os.SameFile(before, after) {
		t.Errorf("another folder: %v", err)
	}
	if status, attempt, text := called(t, dial(t, path), anyCall); status != http.StatusOK || attempt != "12.1" {
		t.Errorf("%d for %q: %s", status, attempt, text)
	}
	next.RemoveOthers(func(a Attempt) bool { return a == Attempt{12, 1} })
	if left, err := os.ReadDir(dir); err != nil || len(left) != 1 || left[0].Name() != "12.1" {
		t.Errorf("%v, %v", left, err)
	}
}

func TestParseAttempt(t *testing.T) {
	for text, want := range map[string]Attempt{
		"12.1": {12, 1}, "18446744073709551615.4294967295": {1<<64 - 1, 1<<32 - 1},
		"": {}, "12": {}, "12.": {}, ".1": {}, "012.1": {}, "12.1 ": {}, "12.4294967296": {}, "+12.1": {}, "12.1.1": {}, "-1.1": {},
	} {
		got, err := ParseAttempt(text)
		if got != want || (err == nil) != (want != Attempt{}) {
			t.Errorf("%q: %v, %v", text, got, err)
		}
	}
}

// TestOwnerOf checks that an attempt is an identity from its allocation until its task on the node
// has ended.
func TestOwnerOf(t *testing.T) {
	owner := cluster.Identity{User: "ann", UID: 1001, GID: 100}
	job := func(state cluster.JobState, phase cluster.TaskPhase) *cluster.Job {
		return &cluster.Job{
			ID: 12, Attempt: 2, State: state, Spec: &cluster.JobSpec{Owner: owner},
			Alloc: &cluster.Allocation{Nodes: []cluster.NodeAllocation{{Node: "n1"}, {Node: "n2"}}},
			Tasks: cluster.NewTasks(cluster.Task{Node: "n1", Phase: phase}, cluster.Task{Node: "n2"}),
		}
	}
	for _, c := range []struct {
		what   string
		job    *cluster.Job
		number cluster.Attempt
		node   string
		want   error
	}{
		{"it is starting", job(cluster.Configuring, cluster.TaskWanted), 2, "n1", nil},
		{"it runs", job(cluster.Running, cluster.TaskStarted), 2, "n1", nil},
		{"it is asked to end", job(cluster.Completing, cluster.TaskStarted), 2, "n1", nil},
		{"its task has ended there", job(cluster.Completing, cluster.TaskEnded), 2, "n1", ErrAttemptEnded},
		{"its task runs elsewhere yet", job(cluster.Completing, cluster.TaskEnded), 2, "n2", nil},
		{"it has ended", job(cluster.Cancelled, cluster.TaskStarted), 2, "n1", ErrAttemptEnded},
		{"the job waits for the next", job(cluster.Pending, cluster.TaskStarted), 2, "n1", ErrAttemptEnded},
		{"it was superseded", job(cluster.Running, cluster.TaskStarted), 1, "n1", ErrAttemptEnded},
		{"it is to come", job(cluster.Running, cluster.TaskStarted), 3, "n1", ErrDenied},
		{"it runs on other nodes", job(cluster.Running, cluster.TaskStarted), 2, "n3", ErrDenied},
		{"there is no such job", nil, 2, "n1", ErrAttemptEnded},
	} {
		id, err := Attempt{12, c.number}.OwnerOf(c.job, c.node)
		if !errors.Is(err, c.want) || (err == nil) != (c.want == nil) || err == nil && id.Identity != owner {
			t.Errorf("%s: %+v, %v", c.what, id, err)
		}
	}
}
