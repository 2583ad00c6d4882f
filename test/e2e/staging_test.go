package e2e

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	greylagv1 "github.com/greylag/greylag/api/gen/greylag/v1"
)

// fileServer is a web server with files. It answers requests for paths below /held/ once the path is released.
type fileServer struct {
	*httptest.Server
	mu    sync.Mutex
	files map[string]string
	held  map[string]chan struct{}
	asked map[string]int
}

func newFileServer(t *testing.T) *fileServer {
	f := &fileServer{files: map[string]string{"/in": "input\n", "/held/in": "input\n"}, held: map[string]chan struct{}{}, asked: map[string]int{}}
	f.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body) // first: else the end of the connection is not noticed
		if gate := f.gate(r.URL.Path); gate != nil {
			select {
			case <-gate:
			case <-r.Context().Done():
				return
			}
		}
		f.mu.Lock()
		defer f.mu.Unlock()
		text, known := f.files[r.URL.Path]
		switch {
		case r.Method == http.MethodPut && err == nil:
			f.files[r.URL.Path] = string(body)
		case !known:
			w.WriteHeader(http.StatusNotFound)
		default:
			fmt.Fprint(w, text)
		}
	}))
	t.Cleanup(func() { f.CloseClientConnections(); f.Close() })
	return f
}

// gate counts a request and returns what it waits for; nil: nothing.
func (f *fileServer) gate(path string) chan struct{} {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.asked[path]++
	if strings.HasPrefix(path, "/held/") && f.held[path] == nil {
		f.held[path] = make(chan struct{})
	}
	return f.held[path]
}

// requested reports whether a path was requested.
func (f *fileServer) requested(path string) func() (bool, error) {
	return func() (bool, error) {
		f.mu.Lock()
		defer f.mu.Unlock()
		return f.asked[path] > 0, nil
	}
}

// get returns a file.
func (f *fileServer) get(path string) string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.files[path]
}

// script writes a script that uses an input file, and fails so that it is known to have run here.
func (f *fileServer) script(x *leased) string {
	x.t.Helper()
	path := filepath.Join(x.Work, "staged.sh")
	x.must(os.WriteFile(path, []byte("#!/bin/sh\necho on $GREYLAG_NODENAME\ntr a-z A-Z <data/in >result\nexit 9\n"), 0o755))
	return path
}

// killLeader kills the leader and starts it again.
func (x *leased) killLeader(ctx context.Context) {
	x.t.Helper()
	killed := x.leader(ctx)
	x.must(killed.Kill())
	x.must(killed.Start())
}

// TestStaging: a job on a leased node reads a file from a web server, and writes one to it; its working directory exists
// nowhere else, and its output arrives. Leaders are killed during both copies.
func TestStaging(t *testing.T) {
	t.Parallel()
	needsRoot(t, "instances with namespaces of their own")
	ctx := limited(t, 6*hang)
	f, x := newFileServer(t), newLeased(t, 3)
	id := x.gsubmit(tester, "--image=oci-archive:"+x.image(), "--burst=only", "--chdir=/absent/of/tester", "--output=job.out", "--gpus=1", "--time=10", "--mem=64M", "--requeue",
		"--stage-in=data/in="+f.URL+"/held/in", "--stage-out=result="+f.URL+"/held/result", f.script(x))
	x.until("the input is requested", f.requested("/held/in"))
	if job := x.await(ctx, id, "CONFIGURING"); !strings.HasPrefix(job.Tasks[0].Node, "cloud-") {
		t.Errorf("the job starts on %s", job.Tasks[0].Node)
	}
	x.killLeader(ctx)
	close(f.gate("/held/in"))
	x.until("the result is sent", f.requested("/held/result"))
	x.await(ctx, id, "COMPLETING")
	x.killLeader(ctx)
	close(f.gate("/held/result"))
	close(f.gate("/held/job.out"))
	if job := x.ends(id, "FAILED"); job.ExitCode != 9 || job.Attempt != 1 || strings.Contains(job.Detail, "stage-out") {
		t.Errorf("the job ended with %d in attempt %d: %s", job.ExitCode, job.Attempt, job.Detail)
	}
	if got := f.get("/held/result"); got != "INPUT\n" {
		t.Errorf("result: %q", got)
	}
	if got := f.get("/held/job.out"); !strings.HasPrefix(got, "on cloud-") {
		t.Errorf("output: %q", got)
	}
	x.ended(ctx)
	x.audit(ctx)
}

// TestStagingOnTheSite: a job on a node of the site copies files, too. A cancel ends a copy, and a missing file the job.
func TestStagingOnTheSite(t *testing.T) {
	t.Parallel()
	needsRoot(t, "a tmpfs")
	ctx := limited(t, 6*hang)
	f, x := newFileServer(t), newLeased(t, 1)
	submit := func(in, out string) uint64 {
		return x.gsubmit(tester, "--chdir="+x.Work, "--output=/dev/null", "--time=10", "--mem=64M", "--stage-in=data/in="+f.URL+in, "--stage-out=result="+f.URL+out, f.script(x))
	}
	id := submit("/in", "/out/result")
	if job := x.ends(id, "FAILED"); job.ExitCode != 9 || f.get("/out/result") != "INPUT\n" {
		t.Errorf("the job ended with %d, %s; result %q", job.ExitCode, job.Detail, f.get("/out/result"))
	}
	id = submit("/missing", "/out/none")
	if job := x.ends(id, "FAILED"); job.Reason != greylagv1.Reason_REASON_JOB_LAUNCH_FAILURE || !strings.Contains(job.Detail, f.URL+"/missing: the server answered 404") {
		t.Errorf("a missing file: %s, %s", job.Reason, job.Detail)
	}
	id = submit("/held/never", "/out/none")
	x.until("the input is requested", f.requested("/held/never"))
	x.ok(tester, "gcancel", ref(id))
	x.ends(id, "CANCELLED")
	x.audit(ctx)
}
