//go:build linux

package containerd

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/containerd/containerd/v2/core/remotes/docker"
	remoteerrors "github.com/containerd/containerd/v2/core/remotes/errors"
	"github.com/containerd/errdefs"

	"github.com/greylag/greylag/internal/image"
	"github.com/greylag/greylag/internal/image/ociimage"
	"github.com/greylag/greylag/internal/runtime"
)

// small writes the test image where uid 1000 can read it.
func small(t *testing.T) (path, digest string) {
	t.Helper()
	needContainers(t)
	built := must(ociimage.Unix())(t)
	built.WorkDir = "/home"
	path = filepath.Join(home(t), "small.tar")
	digest = must(ociimage.WriteFile(path, built))(t)
	return path, digest
}

// TestImage runs a task with an image as its root, from an archive and from a layout.
func TestImage(t *testing.T) {
	r := newRuntime(t, nil)
	archive, digest := small(t)
	layout := filepath.Join(home(t), "layout")
	unpackTar(t, archive, layout)
	ctx, user := limit(t), runtime.Owner{UID: 1000, GID: 1000}
	var name string
	for _, ref := range []string{"oci-archive:" + archive, "oci:" + layout, archive + ":small"} {
		name = must(r.Fetch(ctx, runtime.FetchRequest{Reference: ref, Owner: user}))(t)
		if name != diskName+"@"+digest {
			t.Errorf("%s is %s, want %s", ref, name, digest)
		}
	}
	spec := job(t, 1, "cat /etc/greylag-image; id -u; pwd; echo $GREYLAG_IMAGE $GREETING; touch /x 2>/dev/null || echo not root; ls /tmp; cat mnt/hello\n")
	folder := spec.WorkDir
	if err := os.WriteFile(filepath.Join(folder, "hello"), []byte("mounted\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	spec.Image, spec.WorkDir = name, ""
	spec.Mounts = []runtime.Mount{{Source: folder, Target: folder}, {Source: folder, Target: "/home/mnt"}}
	exit, out := run(t, r, spec)
	if want := "small test image\n1000\n/home\nsmall hello world\nnot root\nmounted\n"; out != want || exit.Code != 0 {
		t.Errorf("%+v\n%s\nwant:\n%s", exit, out, want)
	}
	own := spec
	own.ID.Job, own.Script, own.Env = 3, []byte("#!/bin/sh\necho $PATH\n"), []string{"HOME=/"}
	if _, out := run(t, r, own); out != "/usr/local/bin:/usr/bin:/bin\n" {
		t.Errorf("the image's PATH is %q", out)
	}
	hog := spec
	hog.ID.Job, hog.Script, hog.Args, hog.Memory = 2, nil, []string{"sh", "-c", "x=$(yes | head -c 200000000)"}, 32<<20
	if exit, _ := run(t, r, hog); !exit.OOM {
		t.Errorf("memory in an image: %+v", exit)
	}
	if err := r.Remove(ctx, spec.ID); err != nil {
		t.Fatal(err)
	}
	if _, err := r.client.SnapshotService("overlayfs").Stat(r.scope(ctx), spec.ID.String()); err == nil {
		t.Error("the snapshot of a removed task is left")
	}
}

// TestImageDevices checks that a task with an image sees only its GPUs.
func TestImageDevices(t *testing.T) {
	r := newRuntime(t, nil)
	archive, _ := small(t)
	devices := simulate(t, r, 2)
	spec := job(t, 1, fmt.Sprintf("mknod /tmp/other c %d %d 2>/dev/null || echo no mknod\n", devices[1].Major, devices[1].Minor)+try)
	spec.Image = must(r.Fetch(limit(t), runtime.FetchRequest{Reference: archive, Owner: spec.Owner}))(t)
	spec.Mounts = []runtime.Mount{{Source: spec.WorkDir, Target: spec.WorkDir}}
	spec.Devices, spec.ScriptArgs = []string{"greylag.dev/gpu=0"}, []string{"/dev/nvidia0", "/dev/nvidia1"}
	if _, out := run(t, r, spec); out != "no mknod\n/dev/nvidia0 opens\n/dev/nvidia1 absent\n" {
		t.Errorf("%q", out)
	}
}

// TestImageDriver checks that a task with an image sees the driver's files and finds them by its search paths, and
// that a task on the host's file system does not get them.
func TestImageDriver(t *testing.T) {
	r := newRuntime(t, nil)
	archive, _ := small(t)
	library := filepath.Join(home(t), "libcuda.so.580.1")
	if err := os.WriteFile(library, []byte("the driver\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	devices := simulate(t, r, 1)
	gpus := []GPU{{Index: 0, UUID: "GPU-0", Nodes: []Node{{HostPath: devices[0].Path, Path: "/dev/nvidia0"}}}}
	driver := []Node{{HostPath: library, Path: insideLibraries + "/libcuda.so.1"}, {HostPath: library, Path: insideTools + "/nvidia-smi"}}
	if err := WriteDevices(r.config.DeviceSpecs[0], gpus, nil, driver); err != nil {
		t.Fatal(err)
	}
	spec := job(t, 1, "cat "+insideLibraries+"/libcuda.so.1; (echo >>"+insideTools+"/nvidia-smi) 2>/dev/null || echo read-only; echo $LD_LIBRARY_PATH $PATH\n")
	host := spec
	spec.Image = must(r.Fetch(limit(t), runtime.FetchRequest{Reference: archive, Owner: spec.Owner}))(t)
	spec.Mounts = []runtime.Mount{{Source: spec.WorkDir, Target: spec.WorkDir}}
	spec.Env, spec.Devices = []string{"LD_LIBRARY_PATH=/opt/lib"}, []string{"greylag.dev/gpu=0"}
	if _, out := run(t, r, spec); out != "the driver\nread-only\n/opt/lib:"+insideLibraries+" /usr/local/bin:/usr/bin:/bin:"+insideTools+"\n" {
		t.Errorf("in the image: %q", out)
	}
	host.ID.Job, host.Devices = 2, spec.Devices
	host.Script = []byte("#!/bin/sh\nls " + insideLibraries + " 2>/dev/null; echo ${LD_LIBRARY_PATH-none}\n")
	if _, out := run(t, r, host); out != "none\n" {
		t.Errorf("on the host's file system: %q", out)
	}
}

// TestImageRefused covers files that the user may not read and files that are not images.
func TestImageRefused(t *testing.T) {
	r := newRuntime(t, nil)
	archive, _ := small(t)
	secret := filepath.Join(shared.dir, "secret.tar")
	data := must(os.ReadFile(archive))(t)
	if err := os.WriteFile(secret, data, 0o600); err != nil {
		t.Fatal(err)
	}
	cut := filepath.Join(home(t), "cut.tar")
	if err := os.WriteFile(cut, data[:len(data)/2], 0o644); err != nil {
		t.Fatal(err)
	}
	for ref, want := range map[string]error{
		"oci-archive:" + secret:      os.ErrPermission,
		"oci-archive:" + cut:         image.ErrLayout,
		"oci-archive:/etc/passwd":    image.ErrLayout,
		"oci:" + home(t):             image.ErrLayout,
		archive + ":other":           image.ErrLayout,
		"/images/x.sqsh":             image.ErrSquashFS,
		"ftp://host/image":           image.ErrReference,
		"oci-archive:/nowhere/x.tar": os.ErrNotExist,
	} {
		_, err := r.Fetch(limit(t), runtime.FetchRequest{Reference: ref, Owner: runtime.Owner{UID: 1000, GID: 1000}})
		if !errors.Is(err, want) {
			t.Errorf("%s: %v, want %v", ref, err, want)
		}
	}
	spec := job(t, 1, "exit 0\n")
	spec.Image = diskName + "@sha256:" + strings.Repeat("0", 64)
	if err := r.Start(limit(t), spec); !errors.Is(err, runtime.ErrInvalid) {
		t.Errorf("an image that is not here: %v", err)
	}
}

// loginFile writes a file of registry credentials, as podman login does.
func loginFile(t *testing.T, registry, password string, uid int, mode os.FileMode) string {
	t.Helper()
	auth := base64.StdEncoding.EncodeToString([]byte("ann:" + password))
	path := filepath.Join(home(t), "auth-"+password+strconv.Itoa(uid)+".json")
	if err := os.WriteFile(path, fmt.Appendf(nil, `{"auths": {%q: {"auth": %q}}}`, registry+"/team", auth), mode); err != nil {
		t.Fatal(err)
	}
	if err := os.Chown(path, uid, uid); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestPull pulls from a registry that requires a name and a password, with the user's own
// credentials. The second pull makes one request and downloads nothing.
func TestPull(t *testing.T) {
	r := newRuntime(t, nil)
	archive, digest := small(t)
	registry, requests := serve(t, archive)
	ref, user := "docker://"+registry+"/team/busybox:latest", runtime.Owner{UID: 1000, GID: 1000}
	right := loginFile(t, registry, "secret", 1000, 0o600)
	request := runtime.FetchRequest{Reference: ref, Owner: user, Logins: []string{"/no/such.json", right}}
	ctx := limit(t)
	name := must(r.Fetch(ctx, request))(t)
	if name != registry+"/team/busybox@"+digest {
		t.Errorf("name %s", name)
	}
	before := requests.Load()
	if again := must(r.Fetch(ctx, request))(t); again != name || requests.Load()-before > 2 {
		t.Errorf("again %s after %d requests", again, requests.Load()-before)
	}
	pipe := filepath.Join(home(t), "pipe")
	if err := syscall.Mkfifo(pipe, 0o666); err != nil {
		t.Fatal(err)
	}
	for what, wrong := range map[string]runtime.FetchRequest{
		"a wrong password":     {Reference: ref, Owner: user, Logins: []string{loginFile(t, registry, "wrong", 1000, 0o600), right}},
		"no login":             {Reference: ref, Owner: user},
		"another's login":      {Reference: ref, Owner: runtime.Owner{UID: 1001, GID: 1001}, Logins: []string{right}},
		"a login for a folder": {Reference: "docker://" + registry + "/other/busybox:latest", Owner: user, Logins: []string{right}},
		"a pipe":               {Reference: ref, Owner: user, Logins: []string{pipe}},
		"no logins at all":     {Reference: ref, Owner: user, Logins: []string{archive}},
	} {
		if _, err := r.Fetch(ctx, wrong); err == nil {
			t.Errorf("a private image that is here was given to another user with %s", what)
		} else if strings.Contains(err.Error(), "secret") && what != "a wrong password" {
			t.Errorf("%s: the message names what is secret: %v", what, err)
		}
	}
	spec := job(t, 1, "cat /etc/greylag-image\n")
	spec.Image, spec.Mounts = name, []runtime.Mount{{Source: spec.WorkDir, Target: spec.WorkDir}}
	if _, out := run(t, r, spec); out != "small test image\n" {
		t.Errorf("%q", out)
	}
}

// TestPullWithTheNodesLogin uses the node's credentials, which only root may read; a user's own
// take precedence.
func TestPullWithTheNodesLogin(t *testing.T) {
	archive, _ := small(t)
	registry, _ := serve(t, archive)
	r := newRuntime(t, func(c *Config) { c.Logins = loginFile(t, registry, "secret", 0, 0o600) })
	request := runtime.FetchRequest{Reference: "docker://" + registry + "/team/busybox:latest", Owner: runtime.Owner{UID: 1000, GID: 1000}}
	must(r.Fetch(limit(t), request))(t)
	request.Logins = []string{loginFile(t, registry, "wrong", 1000, 0o600)}
	if _, err := r.Fetch(limit(t), request); err == nil {
		t.Error("the user's own login was passed over")
	}
	for _, path := range []string{
		loginFile(t, registry, "open", 0, 0o640), loginFile(t, registry, "others", 1000, 0o600), "/no/such/logins.json",
	} {
		if _, err := nodeLogins(path); err == nil {
			t.Errorf("logins of %s are used", path)
		}
	}
}

// TestRegistryErrors distinguishes transient errors from mistakes of the user.
func TestRegistryErrors(t *testing.T) {
	status := func(code int) error {
		return errors.Join(remoteerrors.ErrUnexpectedStatus{StatusCode: code}, errors.New("in its words"))
	}
	dial := func(err error) error { return &url.Error{Op: "Head", Err: &net.OpError{Op: "dial", Err: err}} }
	for _, c := range []struct {
		err    error
		passes bool
	}{
		{nil, false},
		{status(500), true}, {status(503), true}, {status(429), true}, {status(401), false}, {status(403), false}, {status(404), false},
		{dial(syscall.ECONNREFUSED), true}, {dial(os.ErrDeadlineExceeded), true}, {&url.Error{Op: "Get", Err: io.EOF}, true},
		{dial(&net.DNSError{IsTimeout: true}), true}, {dial(&net.DNSError{IsNotFound: true}), false},
		{&url.Error{Op: "Get", Err: context.DeadlineExceeded}, true},
		{&net.OpError{Op: "remote error", Err: errors.New("tls: handshake failure")}, false},
		{&url.Error{Op: "Get", Err: x509.UnknownAuthorityError{}}, false},
		{docker.ErrInvalidAuthorization, false}, {errdefs.ErrNotFound, false},
	} {
		if got := ofRegistry(c.err); errors.Is(got, runtime.ErrRegistry) != c.passes || c.err != nil && !errors.Is(got, c.err) {
			t.Errorf("%v: %v", c.err, got)
		}
	}
}

// files reads an archive into memory.
func files(t *testing.T, archive string) map[string][]byte {
	t.Helper()
	file := must(os.Open(archive))(t)
	defer file.Close()
	found := map[string][]byte{}
	for reader := tar.NewReader(file); ; {
		header, err := reader.Next()
		if errors.Is(err, io.EOF) {
			return found
		}
		if err != nil {
			t.Fatal(err)
		}
		found[header.Name] = must(io.ReadAll(reader))(t)
	}
}

func unpackTar(t *testing.T, archive, dir string) {
	t.Helper()
	for name, data := range files(t, archive) {
		if err := os.MkdirAll(filepath.Join(dir, filepath.Dir(name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// serve runs a registry (OCI distribution specification, pull only) with the archive's image under
// any name, for user ann with password secret.
func serve(t *testing.T, archive string) (host string, requests *atomic.Int64) {
	t.Helper()
	blobs := map[string][]byte{}
	contents := files(t, archive)
	for name, data := range contents {
		blobs["sha256:"+path.Base(name)] = data
	}
	digest := must(image.Choose(contents["index.json"], ""))(t)
	requests = new(atomic.Int64)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		requests.Add(1)
		if user, password, ok := q.BasicAuth(); !ok || user != "ann" || password != "secret" {
			w.Header().Set("WWW-Authenticate", `Basic realm="test"`)
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		wanted := path.Base(q.URL.Path)
		if wanted == "latest" {
			wanted = digest
		}
		data, ok := blobs[wanted]
		if !ok {
			w.WriteHeader(http.StatusNotFound)
			return
		}
		if strings.Contains(q.URL.Path, "/manifests/") {
			var manifest struct{ MediaType string }
			if json.Unmarshal(data, &manifest) == nil {
				w.Header().Set("Content-Type", manifest.MediaType)
			}
		}
		sum := sha256.Sum256(data)
		w.Header().Set("Docker-Content-Digest", "sha256:"+hex.EncodeToString(sum[:]))
		http.ServeContent(w, q, "", must(os.Stat(archive))(t).ModTime(), bytes.NewReader(data))
	}))
	t.Cleanup(server.Close)
	return strings.TrimPrefix(server.URL, "http://"), requests
}
