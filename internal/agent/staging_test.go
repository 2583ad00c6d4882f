package agent

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/johannesboyne/gofakes3"
	"github.com/johannesboyne/gofakes3/backend/s3mem"

	greylagv1 "github.com/greylag/greylag/api/gen/greylag/v1"
	"github.com/greylag/greylag/internal/image/ociimage"
)

// store is a web server with files, which a test can hold.
type store struct {
	*httptest.Server
	mu    sync.Mutex
	files map[string]string
	asked chan string   // paths of requests under /held/
	let   chan struct{} // closed: these are answered
}

func newStore(t *testing.T) *store {
	s := &store{files: map[string]string{"/in": "input\n"}, asked: make(chan string, 100), let: make(chan struct{})}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body) // first: else the end of the connection is not noticed
		if strings.HasPrefix(r.URL.Path, "/held/") {
			s.asked <- r.URL.Path
			select {
			case <-s.let:
			case <-r.Context().Done():
				return
			}
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		text, known := s.files[r.URL.Path]
		switch {
		case r.Method == http.MethodPut && err == nil:
			s.files[r.URL.Path] = string(body)
		case !known:
			w.WriteHeader(http.StatusNotFound)
		default:
			fmt.Fprint(w, text)
		}
	}))
	t.Cleanup(s.Close)
	return s
}

func (s *store) get(path string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.files[path]
}

// staged returns a task in the home of the test user that copies files.
func staged(n *node, in, out string) func(*greylagv1.WantedTask) {
	return func(w *greylagv1.WantedTask) {
		w.WorkDir, w.Output = n.home, "out.txt"
		w.StageIn = []*greylagv1.Staging{{Path: "data/in", Url: in}}
		if out != "" {
			w.StageOut = []*greylagv1.Staging{{Path: "result", Url: out}}
		}
	}
}

const useInput = "#!/bin/sh\ntr a-z A-Z <data/in >result\n"

// decide has the controllers decide that a task is over.
func (n *node) decide(job int, copyOut bool) {
	n.change(func() { w := n.wanted[at(job, 1)]; w.Stop, w.CopyOut = true, copyOut })
}

// TestStaging copies the input before a script and its output after the controllers have decided that. The daemon may
// restart meanwhile.
func TestStaging(t *testing.T) {
	t.Parallel()
	s, n := newStore(t), newNode(t, "process", nil)
	close(s.let)
	n.want(at(1, 1), useInput, staged(n, s.URL+"/in", s.URL+"/result"))
	n.reach(at(1, 1), "ended")
	n.stop()
	n.change(func() { n.reports = nil })
	n.start()
	if end := n.reach(at(1, 1), "ended"); wireWord(end) != "ended" || s.get("/result") != "" {
		t.Errorf("before the decision: %v, %q", end, s.get("/result"))
	}
	n.decide(1, true)
	if end := n.settled(at(1, 1)); !end.GetCopied() || end.GetCopyFailed() || s.get("/result") != "INPUT\n" {
		t.Errorf("%v: %q", end, s.get("/result"))
	}
	n.want(at(2, 1), useInput, staged(n, s.URL+"/in", s.URL+"/again"))
	n.reach(at(2, 1), "ended")
	n.decide(2, false)
	if end := n.settled(at(2, 1)); end.GetCopied() || s.get("/again") != "" {
		t.Errorf("not wanted: %v, %q", end, s.get("/again"))
	}
	n.want(at(3, 1), "#!/bin/sh\n", staged(n, s.URL+"/in", s.URL+"/none"))
	n.change(func() { os.Remove(filepath.Join(n.home, "result")) })
	n.reach(at(3, 1), "ended")
	n.decide(3, true)
	if end := n.settled(at(3, 1)); !end.GetCopyFailed() || !strings.HasPrefix(end.GetMessage(), "stage-out result="+s.URL+"/none: ") {
		t.Errorf("without a result: %v", end)
	}
}

func wireWord(r *greylagv1.ReportedTask) string {
	return strings.ToLower(strings.TrimPrefix(r.GetPhase().String(), "TASK_PHASE_"))
}

// TestStageInFails: the script does not start, and the report names the file.
func TestStageInFails(t *testing.T) {
	t.Parallel()
	s, n := newStore(t), newNode(t, "process", nil)
	n.want(at(1, 1), useInput, staged(n, s.URL+"/missing?key=secret", ""))
	end := n.settled(at(1, 1))
	if end.GetCause() != greylagv1.TaskCause_TASK_CAUSE_LAUNCH || end.GetMessage() != "stage-in data/in="+s.URL+"/missing: the server answered 404 Not Found" {
		t.Errorf("%v", end)
	}
	if n.exists("result") {
		t.Error("the script ran")
	}
}

// exists reports whether a file of the test user exists.
func (n *node) exists(name string) bool {
	_, err := os.Stat(filepath.Join(n.home, name))
	return err == nil
}

// TestStagingStops: copies before and after a script end when the controllers stop the task, or no longer want them.
func TestStagingStops(t *testing.T) {
	t.Parallel()
	s, n := newStore(t), newNode(t, "process", nil)
	n.want(at(1, 1), useInput, staged(n, s.URL+"/held/in", s.URL+"/x"))
	<-s.asked
	n.until("the reason of the wait", func() bool { return strings.Contains(n.last(at(1, 1)).GetMessage(), "input files") })
	n.decide(1, false)
	if end := n.settled(at(1, 1)); end.GetCause() != greylagv1.TaskCause_TASK_CAUSE_STOPPED || n.exists("data/in") {
		t.Errorf("stopped: %v", end)
	}
	n.want(at(2, 1), useInput, staged(n, s.URL+"/in", s.URL+"/held/out"))
	n.reach(at(2, 1), "ended")
	n.decide(2, true)
	<-s.asked
	n.decide(2, false)
	if end := n.settled(at(2, 1)); end.GetCopied() || end.GetCopyFailed() {
		t.Errorf("cancelled: %v", end)
	}
}

// TestWorkFolders: a leased node makes the directories that its tasks need and keeps their output, which it also copies.
func TestWorkFolders(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	close(s.let)
	n := newNode(t, "containerd", func(n *node) {
		n.cfg.Lease = &Lease{Expires: time.Now().Add(time.Hour), IdleLimit: time.Hour, WorkDir: filepath.Join(n.dir, "work")}
	})
	image := smallImage(t, n)
	backend := s3mem.New()
	if err := backend.CreateBucket("lab"); err != nil {
		t.Fatal(err)
	}
	bucket := httptest.NewServer(gofakes3.New(backend).Server())
	t.Cleanup(bucket.Close)
	n.secrets = []*greylagv1.SecretValue{{Name: credentialsSecret, Value: []byte("[default]\naws_access_key_id = id\naws_secret_access_key = key\n")}}
	n.want(at(1, 1), "#!/bin/sh\ncat data/in\necho oops >&2\ntr a-z A-Z <data/in >result\n", func(w *greylagv1.WantedTask) {
		staged(n, s.URL+"/in", s.URL+"/files/result")(w)
		w.Environment = n.put([]byte("AWS_ENDPOINT_URL=" + bucket.URL + "\x00AWS_REGION=us-east-1"))
		w.StageOut = append(w.StageOut, &greylagv1.Staging{Path: "data", Url: "s3://lab/run/"})
		w.Image, w.WorkDir, w.Output, w.Error = image, "/absent/of/tester", "logs/out-%j", "/absent/errors/err-%j"
	})
	n.reach(at(1, 1), "ended")
	area := filepath.Join(n.cfg.Lease.WorkDir, "1-1")
	if info, err := os.Stat(filepath.Join(area, "0/data/in")); err != nil || info.Size() != 6 {
		t.Errorf("%v %v", info, err)
	}
	n.decide(1, true)
	end := n.settled(at(1, 1))
	for path, want := range map[string]string{"/files/result": "INPUT\n", "/files/out-1": "input\n", "/files/err-1": "oops\n"} {
		if got := s.get(path); got != want {
			t.Errorf("%s: %q, want %q", path, got, want)
		}
	}
	if _, err := backend.HeadObject("lab", "run/in"); err != nil {
		t.Errorf("run/in: %v; %v", err, end)
	}
	kept, err := os.ReadFile(filepath.Join(area, keptStdout))
	left, _ := os.ReadDir(area)
	if !end.GetCopied() || err != nil || string(kept) != "input\n" || len(left) != 3 {
		t.Errorf("%v: kept %q, %v, %v", end, kept, err, left)
	}
	stdout, stderr := n.agent.outputFiles(at(1, 1), &greylagv1.WantedTask{WorkDir: "/absent/of/tester", Output: "logs/out-%j", Error: "/absent/errors/err-%j", Job: 1, Attempt: 1})
	if stdout != filepath.Join(area, keptStdout) || stderr != filepath.Join(area, keptStderr) {
		t.Errorf("output is read from %s and %s", stdout, stderr)
	}
}

// smallImage returns an image with the usual programs.
func smallImage(t *testing.T, n *node) string {
	t.Helper()
	archive := filepath.Join(n.dir, "image.tar")
	built, err := ociimage.Unix()
	if err == nil {
		_, err = ociimage.WriteFile(archive, built)
	}
	if err == nil {
		err = os.Chmod(archive, 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
	return "oci-archive:" + archive
}

// TestHostPath checks where paths of a task are on the node.
func TestHostPath(t *testing.T) {
	folders := []workFolder{{"/work/0", "/home/u/p"}}
	mounts := []*greylagv1.Mount{{Source: "/lustre/x", Target: "/data"}, {Source: "/lustre/y", Target: "/data/in/", ReadOnly: true}}
	for path, want := range map[string]string{
		"/home/u/p": "/work/0 false true", "/home/u/p/a/b": "/work/0/a/b false true", "/home/u/px": "/home/u/px false false", "/data/z": "/lustre/x/z false true",
		"/data/in/z": "/lustre/y/z true true", "/": "/ false false",
	} {
		host, readOnly, mounted := hostPath(path, folders, mounts)
		if got := fmt.Sprint(host, " ", readOnly, " ", mounted); got != want {
			t.Errorf("%s: %s, want %s", path, got, want)
		}
	}
}

// TestParentURL checks where the output files of a job are copied.
func TestParentURL(t *testing.T) {
	for address, want := range map[string]string{
		"s3://lab/run/out": "s3://lab/run/", "s3://lab/run/out/": "s3://lab/run/", "s3://lab/out": "s3://lab/", "http://host/x?sig=1": "",
		"https://host:8/a/b": "https://host:8/a/", "rsync://host/module": "", "rsync://host/module/": "", "rsync://host/module/x": "rsync://host/module/",
	} {
		if got := parentURL(address); got != want {
			t.Errorf("%s: %q, want %q", address, got, want)
		}
	}
}
