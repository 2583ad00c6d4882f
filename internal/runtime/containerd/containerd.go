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

// Runtime runs tasks through one containerd. Use New.
type Runtime struct {
	config  Config
	client  *client.Client
	tasks   taskdir.Root
	groups  cgroup.Hierarchy
	frame   *frame
	options typeurl.Any // how the shim calls the OCI runtime; never changes
	devices *deviceSpecs
	images  *imageCache
	uses    *imageUses
	locks   keyedLocks
}

// New connects to containerd and prepares this node's folders and the clone of
// the host's file system, which needs root. containerd itself need not answer
// yet: see Ready. Close undoes what New did to the host's mounts.
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
		return nil, fmt.Errorf("scratch folder: %w", err)
	}
	if err := installGInit(config); err != nil {
		return nil, err
	}
	if err := checkShim(config.Shim); err != nil {
		return nil, err
	}
	_ = shim.Sweep() // what cannot be removed takes no more than room, and the next daemon tries again
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
		config: config, client: conn, tasks: tasks, groups: hierarchy,
		frame:   newFrame(config, hierarchy.Unified(), hierarchy.HasSwapLimit()),
		options: runcOptions,
		devices: &deviceSpecs{dirs: config.DeviceSpecs},
		images:  newImageCache(),
		uses:    newImageUses(),
	}, nil
}

// Close disconnects and takes the clone of the host's file system away. Tasks
// go on.
func (r *Runtime) Close() error {
	return errors.Join(r.client.Close(), unmount(r.config.StateDir))
}

// unmount takes away what New has mounted.
func unmount(stateDir string) error {
	return errors.Join(unmountHostRoot(stateDir), unmountProgram(stateDir))
}

// OCIRuntime is the name of the program that makes the containers: runc or crun.
func (r *Runtime) OCIRuntime() string { return filepath.Base(r.config.OCIRuntime) }

// Ready asks containerd for its version. ErrUnavailable where it does not
// answer, ErrTooOld where it is older than 1.6.20, runtime.ErrUnfit where the shim is gone.
func (r *Runtime) Ready(ctx context.Context) error {
	if err := checkShim(r.config.Shim); err != nil {
		return err
	}
	version, err := r.client.Version(r.scope(ctx))
	if err != nil {
		// Else the client would wait up to 10 s before it connects again.
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

// recent tells whether a version is 1.6.20 or later. One that is not written
// as three numbers is a build of somebody's own, who will know.
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

// scope puts the namespace into a call.
func (r *Runtime) scope(ctx context.Context) context.Context {
	return namespaces.WithNamespace(ctx, r.config.Namespace)
}

// installGInit copies ginit beside the tasks, so that replacing the package's
// file by an upgrade neither fails nor changes what running tasks execute.
func installGInit(config Config) error {
	source, err := os.Open(config.GInit)
	if err != nil {
		return fmt.Errorf("first process of tasks: %w", err)
	}
	defer source.Close()
	target := ginitPath(config)
	temporary, err := os.OpenFile(target+".new", os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o755)
	if err != nil {
		return fmt.Errorf("first process of tasks: %w", err)
	}
	_, err = io.Copy(temporary, source)
	if err = errors.Join(err, temporary.Chmod(0o755), temporary.Close()); err == nil {
		err = os.Rename(target+".new", target)
	}
	if err != nil {
		return fmt.Errorf("first process of tasks: %w", err)
	}
	return nil
}

// checkShim refuses one that containerd could not run: each task would fail here and be
// tried again.
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

// ociState is where the OCI runtime keeps its containers: of this node alone,
// since by default every containerd of a machine shares one folder.
func ociState(config Config) string { return filepath.Join(config.StateDir, "oci") }

func ginitPath(config Config) string { return filepath.Join(config.StateDir, "ginit") }

// unavailable marks errors that come from containerd being away, so that
// callers try again; the rest pass unchanged.
func unavailable(err error) error {
	if !errors.Is(err, runtime.ErrUnavailable) && (errdefs.IsUnavailable(err) || errdefs.IsDeadlineExceeded(err)) {
		return &awayError{err}
	}
	return err
}

// awayError is that containerd did not answer a call. An administrator reads it beside
// the node, so it is without what gRPC says around the reason, and says that once.
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

// grpcDial is what gRPC says before the reason why it has no connection.
const grpcDial = `connection error: desc = "transport: Error while dialing: `

// group is the control group of a task.
func (r *Runtime) group(id runtime.TaskID) cgroup.Group {
	if *r.config.Systemd {
		return r.groups.Group(filepath.Join(r.parent(), scopePrefix(r.config)+"-"+id.String()+".scope"))
	}
	return r.groups.Group(filepath.Join(r.parent(), id.String()))
}

// parent is the path of the control group above all tasks.
func (r *Runtime) parent() string {
	if *r.config.Systemd {
		if slice, err := cgroup.SlicePath(r.config.CgroupParent); err == nil { // New has refused any other
			return slice
		}
	}
	return filepath.Join("/", r.config.CgroupParent)
}

// specType is the name under which containerd keeps OCI specs.
const specType = "types.containerd.io/opencontainers/runtime-spec/1/Spec"

// rawSpec carries an encoded OCI spec.
type rawSpec struct{ data []byte }

func (s rawSpec) GetTypeUrl() string { return specType }
func (s rawSpec) GetValue() []byte   { return s.data }

func encodeSpec(spec any) (rawSpec, error) {
	data, err := json.Marshal(spec)
	if err != nil {
		return rawSpec{}, fmt.Errorf("OCI spec: %w", err)
	}
	return rawSpec{data}, nil
}

// keyedLocks lets one Start or Remove at a time work on a task.
type keyedLocks struct {
	mu   sync.Mutex
	held map[runtime.TaskID]chan struct{}
}

// acquire waits for the task's lock and returns what releases it.
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
