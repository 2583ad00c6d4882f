package staging

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/johannesboyne/gofakes3"
	"github.com/johannesboyne/gofakes3/backend/s3mem"
)

// quick returns a stager with short pauses.
func quick() *stager {
	s := newStager("n1/j1-a1")
	s.pause, s.stall = time.Millisecond, 200*time.Millisecond
	return s
}

// copied runs one copy and returns its failure; "" for success.
func copied(t *testing.T, in bool, dir, path, url string) (text string, kind Kind) {
	t.Helper()
	a := quick().run(t.Context(), Order{In: in, Copies: []Copy{{dir, path, url}}})
	if len(a.Failures) == 0 {
		return "", 0
	}
	return a.Failures[0].Text, a.Failures[0].Kind
}

// content returns the files below a directory.
func content(t *testing.T, dir string) map[string]string {
	t.Helper()
	all := map[string]string{}
	err := fs.WalkDir(os.DirFS(dir), ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		text, err := os.ReadFile(filepath.Join(dir, name))
		all[name] = string(text)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func same(t *testing.T, got, want map[string]string) {
	t.Helper()
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

// web is a web server that keeps what is uploaded.
type web struct {
	*httptest.Server
	files map[string]string
	tries atomic.Int64
}

func newWeb(t *testing.T) *web {
	w := &web{files: map[string]string{"/in.txt": "input", "/empty": ""}}
	mux := http.NewServeMux()
	mux.HandleFunc("/flaky/", func(rw http.ResponseWriter, _ *http.Request) {
		if w.tries.Add(1) < 3 {
			rw.Header().Set("Retry-After", "0")
			rw.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		fmt.Fprint(rw, "at last")
	})
	mux.HandleFunc("/torn", func(rw http.ResponseWriter, _ *http.Request) {
		w.tries.Add(1)
		rw.Header().Set("Content-Length", "1000")
		fmt.Fprint(rw, "short")
	})
	mux.HandleFunc("/hang", func(rw http.ResponseWriter, r *http.Request) {
		fmt.Fprint(rw, "beginning")
		rw.(http.Flusher).Flush()
		<-r.Context().Done()
	})
	mux.HandleFunc("/to/{target...}", func(rw http.ResponseWriter, r *http.Request) {
		rw.Header().Set("Location", r.URL.Query().Get("at"))
		rw.WriteHeader(map[bool]int{true: 307, false: 302}[r.URL.Query().Has("keep")])
	})
	mux.HandleFunc("/", func(rw http.ResponseWriter, r *http.Request) {
		text, known := w.files[r.URL.Path]
		switch {
		case r.Header.Get("Referer") != "" || r.Header.Get("Authorization") != "":
			rw.WriteHeader(http.StatusTeapot)
		case r.Method == http.MethodPut:
			body, err := io.ReadAll(r.Body)
			if err == nil {
				w.files[r.URL.Path] = string(body)
				rw.WriteHeader(http.StatusCreated)
			}
		case !known:
			rw.WriteHeader(http.StatusNotFound)
			fmt.Fprint(rw, "\x1b[31mhostile text")
		default:
			fmt.Fprint(rw, text)
		}
	})
	w.Server = httptest.NewServer(mux)
	t.Cleanup(w.Close)
	return w
}

// TestWeb copies files from and to a web server.
func TestWeb(t *testing.T) {
	w, dir := newWeb(t), t.TempDir()
	for path, url := range map[string]string{"a/b/in": "/in.txt", "empty": "/empty", "late": "/flaky/x", "moved": "/to/x?at=/in.txt"} {
		if text, _ := copied(t, true, dir, path, w.URL+url); text != "" {
			t.Errorf("%s: %s", url, text)
		}
	}
	same(t, content(t, dir), map[string]string{"a/b/in": "input", "empty": "", "late": "at last", "moved": "input"})
	if info, err := os.Stat(filepath.Join(dir, "a/b/in")); err != nil || info.Mode().Perm()&0o133 != 0 {
		t.Errorf("%v %v", info, err)
	}
	for path, url := range map[string]string{"a/b/in": "/out/in", "empty": "/out/none", "late": "/to/x?keep&at=/out/moved"} {
		if text, _ := copied(t, false, dir, path, w.URL+url); text != "" {
			t.Errorf("%s: %s", url, text)
		}
	}
	for name, want := range map[string]string{"/out/in": "input", "/out/none": "", "/out/moved": "at last"} {
		if got, ok := w.files[name]; !ok || got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
}

// TestWebFailures checks the texts and kinds of failures. Nothing of a failed copy is left.
func TestWebFailures(t *testing.T) {
	w, dir := newWeb(t), t.TempDir()
	for url, c := range map[string]struct {
		says string
		kind Kind
	}{
		"/missing?signature=secret":         {"x=" + w.URL + "/missing: the server answered 404 Not Found", Permanent},
		"/torn":                             {"the connection broke after 5 bytes", Temporary},
		"/hang":                             {"no byte was transferred for 200ms, in each of 5 tries", Temporary},
		"/to/x?at=file:///etc/passwd":       {"the server redirects from http to file", Permanent},
		"/to/x?at=http://169.254.169.254/":  {"no file is copied from or to this address: 169.254.169.254", Permanent},
		"/to/x?at=http://[fd00:ec2::254]/x": {"no file is copied from or to this address", Permanent},
		"/to/x?at=/to/x":                    {"the server answered 302 Found", Permanent},
	} {
		text, kind := copied(t, true, dir, "x", w.URL+url)
		if !strings.Contains(text, c.says) || kind != c.kind || strings.Contains(text, "secret") {
			t.Errorf("%s: %q %d, want %q %d", url, text, kind, c.says, c.kind)
		}
	}
	if text, kind := copied(t, true, dir, "x", "http://169.254.1.2/x"); kind != Permanent || !strings.Contains(text, "169.254.1.2") {
		t.Errorf("%q %d", text, kind)
	}
	w.Close()
	if text, kind := copied(t, true, dir, "x", w.URL+"/in.txt"); kind != Temporary || !strings.Contains(text, "connection refused, in each of 5 tries") {
		t.Errorf("%q %d", text, kind)
	}
	same(t, content(t, dir), nil)
}

// TestUploadRedirected: a redirection that turns an upload into a download fails.
func TestUploadRedirected(t *testing.T) {
	w, dir := newWeb(t), t.TempDir()
	write(t, dir, "x", "result")
	if text, kind := copied(t, false, dir, "x", w.URL+"/to/x?at=/in.txt"); kind != Permanent || !strings.Contains(text, "redirects an upload with status 302") {
		t.Errorf("%q %d", text, kind)
	}
}

func write(t *testing.T, dir, name, text string) {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// TestLinks: no link leads a copy out of the directory, and only regular files are copied.
func TestLinks(t *testing.T) {
	w, dir, outside := newWeb(t), t.TempDir(), t.TempDir()
	write(t, outside, "secret", "secret")
	write(t, dir, "real", "real")
	for name, target := range map[string]string{"out": outside, "file": filepath.Join(outside, "secret"), "up": "../..", "inside": "real"} {
		if err := os.Symlink(target, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	if err := syscall.Mkfifo(filepath.Join(dir, "fifo"), 0o644); err != nil {
		t.Fatal(err)
	}
	for path, in := range map[string]bool{"out/x": true, "up/x": true, "out/secret": false, "file": false, "fifo": false, "none": false} {
		if text, kind := copied(t, in, dir, path, w.URL+"/in.txt"); text == "" || kind != Permanent {
			t.Errorf("%s: %q %d", path, text, kind)
		}
	}
	if w.files["/in.txt"] != "input" {
		t.Errorf("uploaded %q", w.files["/in.txt"])
	}
	if text, _ := copied(t, true, dir, "file", w.URL+"/in.txt"); text != "" { // it replaces the link
		t.Error(text)
	}
	if text, _ := copied(t, false, dir, "inside", w.URL+"/real"); text != "" || w.files["/real"] != "real" {
		t.Error(text, w.files)
	}
	same(t, content(t, outside), map[string]string{"secret": "secret"})
	same(t, content(t, dir), map[string]string{"real": "real", "file": "input"})
}

// newBucket starts an S3 server with a bucket.
func newBucket(t *testing.T) *s3mem.Backend {
	t.Helper()
	backend := s3mem.New()
	if err := backend.CreateBucket("lab"); err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(gofakes3.New(backend).Server())
	t.Cleanup(server.Close)
	for name, value := range map[string]string{
		"AWS_ENDPOINT_URL": server.URL, "AWS_ENDPOINT_URL_S3": "", "AWS_REGION": "us-east-1", "AWS_ACCESS_KEY_ID": "id", "AWS_SECRET_ACCESS_KEY": "key",
	} {
		t.Setenv(name, value)
	}
	return backend
}

func put(t *testing.T, backend *s3mem.Backend, key, text string) {
	t.Helper()
	if _, err := backend.PutObject("lab", key, map[string]string{"Last-Modified": time.Now().UTC().Format(http.TimeFormat)}, bytes.NewReader([]byte(text)), int64(len(text)), nil); err != nil {
		t.Fatal(err)
	}
}

// TestBucket copies files and directories from and to a bucket.
func TestBucket(t *testing.T) {
	backend, dir := newBucket(t), t.TempDir()
	for key, text := range map[string]string{"set/a": "1", "set/deep/b": "2", "set/": "", "set/deep/": "", "settle": "3"} {
		put(t, backend, key, text)
	}
	for path, url := range map[string]string{"data": "s3://lab/set/", "one/file": "s3://lab/settle"} {
		if text, _ := copied(t, true, dir, path, url); text != "" {
			t.Errorf("%s: %s", url, text)
		}
	}
	same(t, content(t, dir), map[string]string{"data/a": "1", "data/deep/b": "2", "one/file": "3"})
	write(t, dir, "data/large", strings.Repeat("large", 100<<10))
	for path, url := range map[string]string{"data": "s3://lab/out/", "one/file": "s3://lab/file"} {
		if text, _ := copied(t, false, dir, path, url); text != "" {
			t.Errorf("%s: %s", url, text)
		}
	}
	back := t.TempDir()
	for path, url := range map[string]string{".": "s3://lab/out/", "file": "s3://lab/file"} {
		if text, _ := copied(t, true, back, path, url); text != "" {
			t.Errorf("%s: %s", url, text)
		}
	}
	same(t, content(t, back), map[string]string{"a": "1", "deep/b": "2", "large": strings.Repeat("large", 100<<10), "file": "3"})
}

// TestBucketFailures checks failures of S3, and keys that are no paths.
func TestBucketFailures(t *testing.T) {
	backend, dir := newBucket(t), t.TempDir()
	for _, key := range []string{"up/../../x", "abs//x", "long/" + strings.Repeat("n", 300), "dot/./x"} {
		put(t, backend, key, "hostile")
	}
	for url, want := range map[string]string{
		"s3://lab/none": "there is no such object", "s3://lab/none/": "there is no object with this prefix", "s3://absent/x": "bucket does not exist",
		"s3://lab/up/": "no path below the directory", "s3://lab/abs/": "no path below the directory", "s3://lab/long/": "no path below the directory", "s3://lab/dot/": "no path below the directory",
	} {
		if text, kind := copied(t, true, dir, "x", url); !strings.Contains(text, want) || kind != Permanent {
			t.Errorf("%s: %q %d, want %q", url, text, kind, want)
		}
	}
	t.Setenv("AWS_ACCESS_KEY_ID", "")
	t.Setenv("HOME", dir)
	if text, kind := copied(t, true, dir, "x", "s3://lab/none"); kind != Permanent || !strings.Contains(text, "--secret=aws-credentials") {
		t.Errorf("%q %d", text, kind)
	}
	denied := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) {
		rw.WriteHeader(http.StatusForbidden)
		fmt.Fprint(rw, `<Error><Code>AccessDenied</Code><Message>no</Message></Error>`)
	}))
	defer denied.Close()
	t.Setenv("AWS_ACCESS_KEY_ID", "id")
	t.Setenv("AWS_ENDPOINT_URL", denied.URL)
	if text, kind := copied(t, true, dir, "x", "s3://lab/none"); kind != Credentials || !strings.Contains(text, "S3 refused the credentials") {
		t.Errorf("%q %d", text, kind)
	}
	same(t, content(t, dir), nil)
}

// TestStops: a copy ends with its context, and leaves no file.
func TestStops(t *testing.T) {
	w, dir := newWeb(t), t.TempDir()
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if a := quick().run(ctx, Order{In: true, Copies: []Copy{{dir, "x", w.URL + "/hang"}}}); len(a.Failures) != 1 {
		t.Errorf("%+v", a)
	}
	same(t, content(t, dir), nil)
}

// TestOutputsAreIndependent: a file that cannot be copied does not keep the others.
func TestOutputsAreIndependent(t *testing.T) {
	w, dir := newWeb(t), t.TempDir()
	write(t, dir, "b", "result")
	a := quick().run(t.Context(), Order{Copies: []Copy{{dir, "a", w.URL + "/a"}, {dir, "b", w.URL + "/b"}}})
	if len(a.Failures) != 1 || !strings.Contains(a.Failures[0].Text, "no such file") || w.files["/b"] != "result" || a.Bytes != 6 {
		t.Errorf("%+v %v", a, w.files)
	}
}

// FuzzName checks that the names of objects stay below the directory.
func FuzzName(f *testing.F) {
	for _, name := range []string{"a", "a/b", "..", "a/../..", "/a", "a//b", ".", "a\x00", "\xff", `a\..\b`} {
		f.Add(name)
	}
	root := string(filepath.Separator) + "root"
	f.Fuzz(func(t *testing.T, name string) {
		if !isName(name) {
			return
		}
		if full := filepath.Join(root, name); !strings.HasPrefix(full, root+"/") || full != root+"/"+name {
			t.Errorf("%q leads to %q", name, full)
		}
	})
}
