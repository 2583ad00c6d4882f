//go:build linux

package containerd

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/containerd/containerd/api/types/runc/options"
	"github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/pkg/namespaces"
	"github.com/containerd/errdefs"
	"github.com/containerd/errdefs/pkg/errgrpc"
	"github.com/containerd/typeurl/v2"

	"github.com/greylag/greylag/internal/cgroup"
	"github.com/greylag/greylag/internal/runtime"
	"github.com/greylag/greylag/internal/runtime/taskdir"
	"github.com/greylag/greylag/internal/shim"
)

var (
	_ runtime.Runtime = (*Runtime)(nil)
	_ runtime.Images  = (*Runtime)(nil)

	_ runtime.ProcessLister = (*Runtime)(nil)
)

// Runtime runs tasks through one containerd. Create it with New.
type Runtime struct {
	taskdir.Steps
	config  Config
	client  *client.Client
	tasks   taskdir.Root
	groups  cgroup.Hierarchy
	frame   *frame
	options typeurl.Any // options of the shim for the OCI runtime; never change
	devices *deviceSpecs
	images  *imageCache
	uses    *imageUses
	locks   keyedLocks
}

// New connects to containerd, creates this node's directories and clones the host's file system,
// which needs root. containerd need not answer yet: see Ready. Close removes the mounts.
func New(config Config) (*Runtime, error) {
	hierarchy, err := cgroup.Detect()
	if err != nil {
		return nil, err
	}
	config, err = config.withDefaults(hierarchy.Mixed())
	if err != nil {
		return nil, err
	}
	tasks, err := taskdir.Open(filepath.Join(config.StateDir, "jobs"))
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(config.ScratchDir, 0o700); err != nil {
		return nil, fmt.Errorf("scratch directory: %w", err)
	}
	if err := install(config); err != nil {
		return nil, err
	}
	if err := checkShim(config.Shim); err != nil {
		return nil, err
	}
	_ = shim.Sweep() // what remains only uses space, and the next daemon retries
	program, err := ociProgram(config)
	if err != nil {
		return nil, errors.Join(err, unmount(config.StateDir))
	}
	runcOptions, err := typeurl.MarshalAny(&options.Options{
		BinaryName: program, Root: ociState(config), SystemdCgroup: *config.Systemd,
	})
	if err != nil {
		return nil, errors.Join(fmt.Errorf("OCI runtime options: %w", err), unmount(config.StateDir))
	}
	if err := mountHostRoot(config.StateDir); err != nil {
		return nil, errors.Join(err, unmount(config.StateDir))
	}
	conn, err := client.New(config.Address, client.WithDefaultNamespace(config.Namespace))
	if err != nil {
		return nil, errors.Join(fmt.Errorf("containerd at %s: %w: %w", config.Address, runtime.ErrUnavailable, err),
			unmount(config.StateDir))
	}
	return &Runtime{
		Steps: taskdir.Steps{Root: tasks}, config: config, client: conn, tasks: tasks, groups: hierarchy,
		frame:   newFrame(config, hierarchy.Unified(), hierarchy.HasSwapLimit()),
		options: runcOptions,
		devices: &deviceSpecs{dirs: config.DeviceSpecs},
		images:  newImageCache(),
		uses:    newImageUses(),
	}, nil
}

// Close disconnects and removes the clone of the host's file system. Tasks continue.
func (r *Runtime) Close() error {
	return errors.Join(r.client.Close(), unmount(r.config.StateDir))
}

// unmount removes the mounts of New.
func unmount(stateDir string) error {
	return errors.Join(unmountHostRoot(stateDir), unmountProgram(stateDir))
}

// OCIRuntime returns the program that creates containers: runc or crun.
func (r *Runtime) OCIRuntime() string { return filepath.Base(r.config.OCIRuntime) }

// Ready requests containerd's version. It returns ErrUnavailable if containerd does not answer,
// ErrTooOld if it is older than 1.6.20, and runtime.ErrUnfit if the shim is missing.
func (r *Runtime) Ready(ctx context.Context) error {
	if err := checkShim(r.config.Shim); err != nil {
		return err
	}
	version, err := r.client.Version(r.scope(ctx))
	if err != nil {
		// Otherwise the client would wait up to 10 s before it reconnects.
		if conn, ok := r.client.Conn().(interface{ ResetConnectBackoff() }); ok {
			conn.ResetConnectBackoff()
		}
		return unavailable(errgrpc.ToNative(err))
	}
	if !recent(version.Version) {
		return fmt.Errorf("containerd %s: %w", version.Version, ErrTooOld)
	}
	return nil
}

// recent reports whether a version is 1.6.20 or later. A version that is not three numbers is a
// custom build and is accepted.
func recent(version string) bool {
	version = strings.TrimPrefix(version, "v")
	if cut := strings.IndexAny(version, "~+- "); cut >= 0 {
		version = version[:cut]
	}
	floor := []int{1, 6, 20}
	parts := strings.Split(version, ".")
	if len(parts) != len(floor) {
		return true
	}
	for i, part := range parts {
		n, err := strconv.Atoi(part)
		if err != nil || n > floor[i] {
			return true
		}
		if n < floor[i] {
			return false
		}
	}
	return true
}

// scope adds the namespace to a call.
func (r *Runtime) scope(ctx context.Context) context.Context {
	return namespaces.WithNamespace(ctx, r.config.Namespace)
}

// install copies ginit and gstepd to the task directories, so that an upgrade of the package neither
// fails nor changes what running tasks execute.
func install(config Config) error {
	if err := copyProgram(config.GInit, ginitPath(config)); err != nil {
		return fmt.Errorf("first process of tasks: %w", err)
	}
	if config.GStepd == "" {
		return nil
	}
	if err := copyProgram(config.GStepd, gstepdPath(config)); err != nil {
		return fmt.Errorf("program for steps: %w", err)
	}
	return nil
}

// copyProgram replaces a program atomically.
func copyProgram(from, target string) error {
	source, err := os.Open(from)
	if err != nil {
		return err
	}
	defer source.Close()
	temporary, err := os.OpenFile(target+".new", os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o755)
	if err != nil {
		return err
	}
	_, err = io.Copy(temporary, source)
	if err = errors.Join(err, temporary.Chmod(0o755), temporary.Close()); err == nil {
		err = os.Rename(target+".new", target)
	}
	return err
}

// checkShim refuses a shim that containerd cannot execute: each task would fail and be retried.
func checkShim(path string) error {
	if path == "" {
		return nil
	}
	for _, program := range []string{path, filepath.Join(filepath.Dir(path), shim.Daemon)} {
		if _, err := exec.LookPath(program); err != nil || !filepath.IsAbs(program) {
			return fmt.Errorf("%w: shim %s: install it, or set containerd.shim to \"containerd\": %w", runtime.ErrUnfit, program, err)
		}
	}
	return nil
}

// ociState returns the OCI runtime's state directory for this node: by default all containerds of a
// machine share one.
func ociState(config Config) string { return filepath.Join(config.StateDir, "oci") }

func ginitPath(config Config) string { return filepath.Join(config.StateDir, "ginit") }

// gstepdPath returns the copy of gstepd; "" if tasks have no steps.
func gstepdPath(config Config) string {
	if config.GStepd == "" {
		return ""
	}
	return filepath.Join(config.StateDir, "gstepd")
}

// unavailable marks errors of an absent containerd, so that callers retry; it returns others
// unchanged.
func unavailable(err error) error {
	if !errors.Is(err, runtime.ErrUnavailable) && (errdefs.IsUnavailable(err) || errdefs.IsDeadlineExceeded(err)) {
		return &awayError{err}
	}
	return err
}

// awayError means that containerd did not answer a call. Its message is for administrators: without
// the text that gRPC adds, and with the reason once.
type awayError struct{ cause error }

// Error implements error.
func (e *awayError) Error() string {
	var why []string
	for line := range strings.Lines(e.cause.Error()) {
		doing, dial, dialled := strings.Cut(strings.TrimSuffix(line, "\n"), grpcDial)
		if dialled {
			dial = strings.TrimSuffix(dial, `"`)
		}
		if line = doing + dial; !slices.Contains(why, line) {
			why = append(why, line)
		}
	}
	return fmt.Sprintf("containerd: %v: %s", runtime.ErrUnavailable, strings.Join(why, "; "))
}

// Unwrap implements errors.Unwrap.
func (e *awayError) Unwrap() []error { return []error{runtime.ErrUnavailable, e.cause} }

// grpcDial is gRPC's text before the reason of a failed connection.
const grpcDial = `connection error: desc = "transport: Error while dialing: `

// group returns the control group of a task.
func (r *Runtime) group(id runtime.TaskID) cgroup.Group {
	if *r.config.Systemd {
		return r.groups.Group(filepath.Join(r.parent(), scopePrefix(r.config)+"-"+id.String()+".scope"))
	}
	return r.groups.Group(filepath.Join(r.parent(), id.String()))
}

// parent returns the path of the control group above all tasks.
func (r *Runtime) parent() string {
	if *r.config.Systemd {
		if slice, err := cgroup.SlicePath(r.config.CgroupParent); err == nil { // New refuses invalid names
			return slice
		}
	}
	return filepath.Join("/", r.config.CgroupParent)
}

// specType is the type name of OCI specs in containerd.
const specType = "types.containerd.io/opencontainers/runtime-spec/1/Spec"

// rawSpec holds an encoded OCI spec.
type rawSpec struct{ data []byte }

func (s rawSpec) GetTypeUrl() string { return specType } //revive:disable-line:var-naming the name of the interface
func (s rawSpec) GetValue() []byte   { return s.data }

func encodeSpec(spec any) (rawSpec, error) {
	data, err := json.Marshal(spec)
	if err != nil {
		return rawSpec{}, fmt.Errorf("OCI spec: %w", err)
	}
	return rawSpec{data}, nil
}

// keyedLocks serializes Start and Remove of each task.
type keyedLocks struct {
	mu   sync.Mutex
	held map[runtime.TaskID]chan struct{}
}

// acquire waits for the task's lock and returns its release function.
func (l *keyedLocks) acquire(ctx context.Context, id runtime.TaskID) (release func(), err error) {
	for {
		l.mu.Lock()
		busy, ok := l.held[id]
		if !ok {
			if l.held == nil {
				l.held = map[runtime.TaskID]chan struct{}{}
			}
			done := make(chan struct{})
			l.held[id] = done
			l.mu.Unlock()
			return func() {
				l.mu.Lock()
				delete(l.held, id)
				l.mu.Unlock()
				close(done)
			}, nil
		}
		l.mu.Unlock()
		select {
		case <-busy:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}
