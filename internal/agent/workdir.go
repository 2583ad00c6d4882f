package agent

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	greylagv1 "github.com/greylag/greylag/api/gen/greylag/v1"
	"github.com/greylag/greylag/internal/reconcile"
	tasks "github.com/greylag/greylag/internal/runtime"
	"github.com/greylag/greylag/internal/userfile"
	"github.com/greylag/greylag/pkg/cluster"
)

// A leased node has no file system of the site: the working directory of a job and the directories of its output need not
// exist there. A task with an image then sees empty ones at the same paths. They are on the node's own disk, belong to
// the user, and are deleted with the task. Its output files are kept until the node is released, for gctl logs.

// workFolder is a directory of this node that a task sees at a path that does not exist here.
type workFolder struct {
	Source string `json:"source"`
	Target string `json:"target"`
}

// workFolders are those of a task. Root alone can change them.
type workFolders struct {
	Folders        []workFolder `json:"folders"`
	Stdout, Stderr string       // in the file system of the task
}

const (
	foldersFile = "folders" // has the workFolders of a task
	keptStdout  = "stdout"
	keptStderr  = "stderr"
)

// workArea returns the directory with the work folders of a task; "" on a node of the site.
func (a *Agent) workArea(id reconcile.ID) string {
	if a.cfg.Lease == nil || a.cfg.Lease.WorkDir == "" {
		return ""
	}
	return filepath.Join(a.cfg.Lease.WorkDir, fmt.Sprintf("%d-%d", id.Job, id.Attempt))
}

// addWorkFolders creates the directories of a task that do not exist on this node.
func (a *Agent) addWorkFolders(l *launch, spec *tasks.Spec) error {
	area := a.workArea(l.id)
	if area == "" || !a.cfg.Isolated || l.spec.GetImage() == "" {
		return nil
	}
	w := workFolders{Stdout: spec.Stdout, Stderr: spec.Stderr}
	for _, dir := range []string{spec.WorkDir, folder(spec.Stdout), folder(spec.Stderr)} {
		target := filepath.Clean(dir)
		_, _, mounted := hostPath(target, w.Folders, l.spec.GetMounts())
		if mounted || target == "/tmp" || target == "/var/tmp" || !temporary(target) && !mayShow(target) || !absent(spec.Owner, dir) {
			continue
		}
		w.Folders = append(w.Folders, workFolder{filepath.Join(area, strconv.Itoa(len(w.Folders))), target})
	}
	if len(w.Folders) == 0 {
		return nil
	}
	if err := w.create(area, spec.Owner); err != nil {
		return failed(cluster.NodeFault, "cannot create the working directory on node %s: %v", l.node, err)
	}
	l.folders = w.Folders
	return nil
}

// absent reports whether a directory does not exist, as far as its user can see.
func absent(owner tasks.Owner, dir string) bool {
	err := userfile.As(owner, func() error {
		folder, err := userfile.OpenFolder(dir)
		if err != nil {
			return err
		}
		return folder.Close()
	})
	return errors.Is(err, fs.ErrNotExist)
}

// create creates the directories of a task, or uses those of an earlier start of it.
func (w *workFolders) create(area string, owner tasks.Owner) error {
	text, err := json.Marshal(w)
	if err == nil {
		err = os.MkdirAll(area, 0o711)
	}
	for _, dir := range []string{filepath.Dir(area), area} { // the daemon may have another umask
		if err == nil {
			err = os.Chmod(dir, 0o711)
		}
	}
	if err == nil {
		err = os.WriteFile(filepath.Join(area, foldersFile), text, 0o600)
	}
	for _, f := range w.Folders {
		if err == nil {
			err = w.createFolder(f, owner)
		}
	}
	return err
}

// createFolder creates a directory with those of the output files in it.
func (w *workFolders) createFolder(f workFolder, owner tasks.Owner) error {
	if err := os.Mkdir(f.Source, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	root, err := os.OpenRoot(f.Source)
	if err != nil {
		return err
	}
	defer root.Close()
	for _, output := range []string{w.Stdout, w.Stderr} {
		rest, below := within(filepath.Dir(output), f.Target)
		if !below || rest == "." {
			continue
		}
		if err := createBelow(root, rest, owner); err != nil {
			return err
		}
	}
	return own(root, ".", owner) // last: until then its user cannot change anything in it
}

// createBelow creates a directory with its parents for a user.
func createBelow(root *os.Root, dir string, owner tasks.Owner) error {
	path := ""
	for name := range strings.SplitSeq(dir, "/") {
		path = filepath.Join(path, name)
		err := root.Mkdir(path, 0o755)
		if errors.Is(err, fs.ErrExist) {
			continue
		}
		if err == nil {
			err = own(root, path, owner)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// own gives a file to a user, if this daemon can.
func own(root *os.Root, path string, owner tasks.Owner) error {
	if os.Geteuid() != 0 {
		return nil
	}
	return root.Lchown(path, int(owner.UID), int(owner.GID))
}

// within returns a path relative to a directory that contains it, both clean.
func within(path, dir string) (rest string, ok bool) {
	if path == dir {
		return ".", true
	}
	return strings.CutPrefix(path, strings.TrimSuffix(dir, "/")+"/")
}

// hostPath returns where a clean path of a task is on this node, by the innermost of the directories that it sees at other
// paths than they have here. mounted reports whether one contains it.
func hostPath(path string, folders []workFolder, mounts []*greylagv1.Mount) (host string, readOnly, mounted bool) {
	host, inner := path, -1
	consider := func(source, target string, ro bool) {
		target = filepath.Clean(target)
		if rest, ok := within(path, target); ok && len(target) > inner {
			host, readOnly, mounted, inner = filepath.Join(source, rest), ro, true, len(target)
		}
	}
	for _, m := range mounts {
		consider(m.GetSource(), m.GetTarget(), m.GetReadOnly())
	}
	for _, f := range folders {
		consider(f.Source, f.Target, false)
	}
	return host, readOnly, mounted
}

// foldersOf reads the work folders of a task; none on a node of the site.
func (a *Agent) foldersOf(id reconcile.ID) (w workFolders) {
	area := a.workArea(id)
	if area == "" {
		return w
	}
	text, err := os.ReadFile(filepath.Join(area, foldersFile))
	if err == nil {
		err = json.Unmarshal(text, &w)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		a.log.Warn("cannot read the directories of a task", "job", id.Job, "attempt", id.Attempt, "err", err)
	}
	return w
}

// outputFiles returns the paths on this node of the output files of a task; stderr is "" if it is the same file as stdout.
func (a *Agent) outputFiles(id reconcile.ID, spec *greylagv1.WantedTask) (stdout, stderr string) {
	_, stdout, stderr = files(spec, a.cfg.Name)
	w := a.foldersOf(id)
	if len(w.Folders) == 0 {
		return stdout, stderr
	}
	place := func(path, kept string) string {
		kept = filepath.Join(a.workArea(id), kept)
		if _, err := os.Lstat(kept); err == nil {
			return kept
		}
		path, _, _ = hostPath(filepath.Clean(path), w.Folders, nil)
		return path
	}
	stdout = place(stdout, keptStdout)
	if stderr != "" {
		stderr = place(stderr, keptStderr)
	}
	return stdout, stderr
}

// removeWorkFolders deletes the work folders of a task that is gone, except its output files.
func (a *Agent) removeWorkFolders(id reconcile.ID) {
	w := a.foldersOf(id)
	for _, f := range w.Folders {
		err := w.keep(f, w.Stdout, filepath.Join(a.workArea(id), keptStdout))
		if w.Stderr != w.Stdout && w.Stderr != "" {
			err = errors.Join(err, w.keep(f, w.Stderr, filepath.Join(a.workArea(id), keptStderr)))
		}
		if err = errors.Join(err, userfile.RemoveTree(f.Source)); err != nil {
			a.log.Warn("cannot remove the working directory of a task", "job", id.Job, "attempt", id.Attempt, "path", f.Source, "err", err)
		}
	}
}

// keep moves an output file out of a directory that is removed. The user could have replaced any part of its path by a
// link: only a regular file below the directory is moved.
func (w *workFolders) keep(f workFolder, output, target string) error {
	rest, below := within(filepath.Clean(output), f.Target)
	if output == "" || !below || rest == "." {
		return nil
	}
	root, err := os.OpenRoot(f.Source)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer root.Close()
	dir, err := root.Open(filepath.Dir(rest))
	if err != nil {
		return unlessAbsent(err)
	}
	defer dir.Close()
	var stat unix.Stat_t
	name := filepath.Base(rest)
	if err := unix.Fstatat(int(dir.Fd()), name, &stat, unix.AT_SYMLINK_NOFOLLOW); err != nil || stat.Mode&unix.S_IFMT != unix.S_IFREG {
		return unlessAbsent(err)
	}
	return unix.Renameat(int(dir.Fd()), name, unix.AT_FDCWD, target)
}

// unlessAbsent returns an error unless it says that a file does not exist.
func unlessAbsent(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// removeStaleWork removes the work folders of tasks that no longer exist, in a goroutine. Call it after the runtime has
// listed its tasks, in the loop or before it starts.
func (a *Agent) removeStaleWork() {
	if a.cfg.Lease == nil || a.cfg.Lease.WorkDir == "" {
		return
	}
	kept := map[reconcile.ID]bool{}
	for id, t := range a.tasks {
		kept[id] = t.Phase < reconcile.Clean
	}
	a.workers.Go(func() {
		entries, _ := os.ReadDir(a.cfg.Lease.WorkDir) // it may not exist yet
		for _, e := range entries {
			job, attempt, _ := strings.Cut(e.Name(), "-")
			j, errJob := strconv.ParseUint(job, 10, 64)
			n, errAttempt := strconv.ParseUint(attempt, 10, 32)
			id := reconcile.ID{Job: cluster.JobID(j), Attempt: cluster.Attempt(n)}
			if errors.Join(errJob, errAttempt) == nil && !kept[id] && a.workArea(id) == filepath.Join(a.cfg.Lease.WorkDir, e.Name()) {
				a.removeWorkFolders(id)
			}
		}
	})
}
