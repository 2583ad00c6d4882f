//go:build linux

package containerd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/containerd/containerd/api/services/tasks/v1"
	"github.com/containerd/containerd/api/types"
	"github.com/containerd/containerd/api/types/task"
	"github.com/containerd/containerd/v2/core/containers"
	"github.com/containerd/errdefs"
	"github.com/containerd/errdefs/pkg/errgrpc"
	"github.com/containerd/typeurl/v2"
	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/greylag/greylag/internal/ginit"
	"github.com/greylag/greylag/internal/runtime"
	"github.com/greylag/greylag/internal/runtime/proc"
	"github.com/greylag/greylag/internal/runtime/taskdir"
)

// ownShim is containerd's name of its own shim for runc and compatible runtimes.
const ownShim = "io.containerd.runc.v2"

// labelNode marks containers with their node.
const labelNode = "greylag/node"

// undoLimit is the timeout of the cleanup after a failed start.
const undoLimit = 30 * time.Second

// Start implements runtime.Runtime. It makes three calls to containerd: container, task, start;
// with an image one more, for its snapshot.
func (r *Runtime) Start(ctx context.Context, spec runtime.Spec) error {
	if err := spec.Check(); err != nil {
		return err
	}
	release, err := r.locks.acquire(ctx, spec.ID)
	if err != nil {
		return err
	}
	defer release()
	seen, err := r.pin(&spec)
	if err != nil {
		return err
	}
	defer seen.unpin()
	spec.Mounts = seen.mounts
	ctx = r.scope(ctx)
	dir, created, err := r.tasks.Create(spec.ID)
	if err != nil {
		return err
	}
	if !created {
		adopted, err := r.adopt(ctx, spec.ID, dir)
		if adopted || err != nil {
			return err
		}
		if _, _, err := r.tasks.Create(spec.ID); err != nil {
			return err
		}
	}
	if err := r.launch(ctx, &spec, seen, dir); err != nil {
		// The deadline also passes at containerd and its shim, which may report it first.
		late := context.DeadlineExceeded
		if gone := checkShim(r.config.Shim); gone != nil { // each task would fail and be retried
			err = gone
		} else if errors.Is(ctx.Err(), late) || strings.Contains(err.Error(), late.Error()) {
			err = &awayError{err}
		}
		undo, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoLimit)
		defer cancel()
		err = fmt.Errorf("start task %s: %w", spec.ID, unavailable(err))
		// The next Start or Remove handles what cannot be undone now.
		left := r.remove(undo, spec.ID)
		if errors.Is(err, runtime.ErrUnavailable) && errors.Is(left, runtime.ErrUnavailable) {
			return err // the one word says both
		}
		return errors.Join(err, left)
	}
	return nil
}

// adopt determines the state of a task whose directory exists. If it never ran, adopt removes the
// rest and returns false.
func (r *Runtime) adopt(ctx context.Context, id runtime.TaskID, dir taskdir.Dir) (adopted bool, err error) {
	if dir.Fenced() { // Remove was interrupted
		return false, r.remove(ctx, id)
	}
	started := dir.Started()
	if started {
		if _, known, err := dir.Process(); known || err != nil {
			return true, err
		}
	}
	answer, err := r.client.TaskService().Get(ctx, &tasks.GetRequest{ContainerID: id.String()})
	err = errgrpc.ToNative(err)
	switch {
	case errdefs.IsNotFound(err) && started:
		return true, nil // the record has its end, or it is lost
	case errdefs.IsNotFound(err):
	case err != nil:
		return false, unavailable(err)
	case answer.Process.Status == task.Status_STOPPED && (started || answer.Process.Pid != 0):
		return true, nil // its ID may be reused
	case !slices.Contains([]task.Status{task.Status_STOPPED, task.Status_CREATED, task.Status_UNKNOWN}, answer.Process.Status):
		// It was released and starts soon.
		return true, r.noteProcess(dir, answer.Process.Pid)
	case started:
		return true, nil // the OCI runtime has not reported it yet
	}
	if err := r.remove(ctx, id); err != nil {
		return false, err
	}
	return false, nil
}

// launch creates the container and releases its ginit.
func (r *Runtime) launch(ctx context.Context, spec *runtime.Spec, seen *view, dir taskdir.Dir) error {
	container := containers.Container{
		ID:      spec.ID.String(),
		Labels:  map[string]string{labelNode: r.config.CgroupParent},
		Runtime: containers.RuntimeInfo{Name: cmp.Or(r.config.Shim, ownShim), Options: r.options},
	}
	rootfs, base, err := r.root(ctx, spec, &container)
	if err != nil {
		return err
	}
	oci, err := r.prepare(spec, seen, dir, base)
	if err != nil {
		return err
	}
	if spec.Image != "" {
		if err := r.checkImage(spec, rootfs, oci); err != nil {
			return err
		}
	}
	if container.Spec, err = encodeSpec(oci); err != nil {
		return err
	}
	if _, err := r.client.ContainerService().Create(ctx, container); err != nil {
		return fmt.Errorf("make container: %w", err)
	}
	service := r.client.TaskService()
	created, err := service.Create(ctx, &tasks.CreateTaskRequest{
		ContainerID: container.ID, Rootfs: rootfs, Options: typeurl.MarshalProto(r.options),
	})
	if err != nil {
		return refusal(errgrpc.ToNative(err), spec)
	}
	if created.Pid != 0 { // containerd's own shim created ginit, which waits for its release
		if err := r.noteProcess(dir, created.Pid); err != nil {
			return err
		}
	}
	started, err := service.Start(ctx, &tasks.StartRequest{ContainerID: container.ID})
	if err != nil {
		return refusal(errgrpc.ToNative(err), spec)
	}
	if created.Pid != 0 {
		return nil
	}
	return r.noteProcess(dir, started.Pid) // if this is not reached, adopt finds it
}

// startMemory is the memory that runc needs at most to start a container, plus a reserve.
const startMemory = 32 << 20

// refusal explains why the OCI runtime created no container: its message without the layers around
// it. If the memory limit does not even allow the start, it is the task's own fault, and so is a
// user's directory that cannot be mounted, for example because the image has a file in its place.
func refusal(err error, spec *runtime.Spec) error {
	text, memory := err.Error(), spec.Memory
	for _, m := range spec.Mounts {
		if strings.Contains(text, m.Source) {
			text = strings.TrimSuffix(text, ": unknown") // containerd's error class
			return fmt.Errorf("mount %s in the task: %s: %w", m.Target, text[strings.LastIndex(text, ": ")+2:], runtime.ErrInvalid)
		}
	}
	for sign, below := range map[string]uint64{
		"unable to set memory limit":    math.MaxUint64, // runc 1.1
		"memory limit too low":          math.MaxUint64, // runc 1.0
		"memory limit could be too low": math.MaxUint64, // crun
		// runc 1.1 under systemd, which removes the group of the killed process: runc's next access
		// fails. If memory suffices, the cause may be another.
		"error setting cgroup config for procHooks process": startMemory,
		"write init-p: broken pipe":                         startMemory,
	} {
		if memory > 0 && memory < below && strings.Contains(text, sign) {
			return fmt.Errorf("%d KiB of memory is too little to start it: %w", memory>>10, runtime.ErrInvalid)
		}
	}
	for _, layer := range []string{"OCI runtime create failed: ", "unable to start container process: ", "error during container init: "} {
		if _, inner, found := strings.Cut(text, layer); found {
			text = inner
		}
	}
	if text == err.Error() {
		return fmt.Errorf("make task: %w", err)
	}
	return &ociError{text, err}
}

// ociError is the short reason why the OCI runtime created no container.
type ociError struct {
	text string
	err  error
}

// Error returns only the reason.
func (e *ociError) Error() string { return "OCI runtime: " + e.text }

// Unwrap returns containerd's whole error.
func (e *ociError) Unwrap() error { return e.err }

// noteProcess records the process of ginit; 0 means that it has ended.
func (r *Runtime) noteProcess(dir taskdir.Dir, pid uint32) error {
	handle, err := proc.Identify(int(pid))
	if errors.Is(err, proc.ErrGone) {
		return nil // ended already: see its record
	}
	if err != nil {
		return err
	}
	return dir.WriteProcess(handle)
}

// base is an image's configuration.
type base struct {
	rootfs  string // for the OCI spec
	env     []string
	args    []string
	workDir string
}

// root provides the file system of the task: the clone of the host's, or a writable snapshot of the
// image.
func (r *Runtime) root(ctx context.Context, spec *runtime.Spec, container *containers.Container) ([]*types.Mount, base, error) {
	if spec.Image == "" {
		return nil, base{rootfs: hostRoot(r.config.StateDir)}, nil
	}
	image, err := r.images.of(ctx, r.client, spec.Image, r.config.Snapshotter)
	if err != nil {
		return nil, base{}, err
	}
	mounts, err := r.snapshot(ctx, spec.ID, image.chain)
	if err != nil {
		return nil, base{}, err
	}
	container.Image = spec.Image
	container.Snapshotter, container.SnapshotKey = r.config.Snapshotter, spec.ID.String()
	image.base.rootfs = "rootfs" // relative to the bundle, where the shim mounts it
	return mounts, image.base, nil
}

// prepare fills the task's directory and returns its OCI spec.
func (r *Runtime) prepare(spec *runtime.Spec, seen *view, dir taskdir.Dir, from base) (*specs.Spec, error) {
	own := folders{task: string(dir), ginit: ginitPath(r.config), gstepd: gstepdPath(r.config)}
	if spec.PrivateTmp {
		own.tmp = filepath.Join(r.config.ScratchDir, spec.ID.String())
		if err := errors.Join(makeTmp(own.tmp), seen.makeLinks(own.tmp)); err != nil {
			return nil, err
		}
	}
	oci := r.frame.container(spec, from.rootfs, own)
	oci.Linux.MaskedPaths = append(oci.Linux.MaskedPaths, seen.masked...)
	if len(spec.Devices) > 0 {
		if err := r.devices.inject(oci, spec.Devices, spec.Image == ""); err != nil {
			return nil, err
		}
		oci.Mounts = withoutCovered(oci.Mounts, spec.Mounts)
	}
	notes := taskdir.Notes{Labels: spec.Labels, Snapshot: spec.Image != ""}
	if err := dir.WriteNotes(notes); err != nil {
		return nil, err
	}
	order := r.order(spec, from)
	// The variables of the devices take precedence.
	order.Env = environment(environment(from.env, spec.Env), oci.Process.Env[1:])
	oci.Process.Env = oci.Process.Env[:1]
	order.Env = withDriver(order.Env, oci.Mounts)
	if spec.Image != "" && len(spec.Programs) > 0 {
		order.Env = withPrograms(order.Env)
	}
	if len(spec.Script) > 0 {
		if err := dir.WriteScript(spec.Script, spec.UID, spec.GID); err != nil {
			return nil, err
		}
	}
	if len(order.Args) == 0 && !order.Hold {
		return nil, fmt.Errorf("image %s has no entry point: %w", spec.Image, runtime.ErrInvalid)
	}
	if err := dir.WriteOrder(order); err != nil {
		return nil, err
	}
	return oci, nil
}

// order returns the order for ginit.
func (r *Runtime) order(spec *runtime.Spec, from base) ginit.Order {
	order := ginit.Order{
		Become: true, Confine: true, UID: spec.UID, GID: spec.GID, Groups: spec.Groups,
		Args: spec.Args, WorkDir: spec.WorkDir,
		Stdin: spec.Stdin, Stdout: spec.Stdout, Stderr: spec.Stderr, Append: spec.Append, Umask: spec.Umask, Hold: spec.Hold,
	}
	if r.config.GStepd != "" {
		order.Stepd = insideGStepd
	}
	if r.groups.Unified() {
		order.Group = ownGroup
	}
	if order.Umask == 0 {
		order.Umask = 0o022
	}
	if order.WorkDir == "" {
		order.WorkDir = from.workDir
	}
	switch {
	case len(spec.Script) > 0:
		order.Args = append([]string{insideDir + "/" + ginit.ScriptFile}, spec.ScriptArgs...)
		order.ScriptIs = "the script"
	case len(spec.Args) == 0 && !spec.Hold:
		order.Args = from.args
	}
	return order
}

// makeTmp creates the private /tmp and /var/tmp in a directory that only root can enter.
func makeTmp(dir string) error {
	for _, name := range []string{"tmp", "var"} {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(path, 0o700); err != nil {
			return fmt.Errorf("private folders: %w", err)
		}
		if err := os.Chmod(path, 0o777|os.ModeSticky); err != nil {
			return fmt.Errorf("private folders: %w", err)
		}
	}
	return nil
}
