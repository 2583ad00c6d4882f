//go:build linux

package userfile

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

var ann, bob = Owner{UID: 1000, GID: 1000, Groups: []uint32{1000}}, Owner{UID: 1001, GID: 1001, Groups: []uint32{1001}}

// home makes a folder that only its owner may enter, with a file that everyone may read.
func home(t *testing.T, owner Owner) string {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root: two users")
	}
	outer, err := os.MkdirTemp("", "userfile-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(outer) })
	dir := filepath.Join(outer, "home")
	err = errors.Join(os.Chmod(outer, 0o755), os.Mkdir(dir, 0o700), os.WriteFile(dir+"/notes", []byte("private"), 0o644),
		os.Chown(dir, int(owner.UID), int(owner.GID)), os.Chown(dir+"/notes", int(owner.UID), int(owner.GID)))
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// process starts a process of owner in dir, with mounts of its own, and returns its folder in /proc.
func process(t *testing.T, owner Owner, dir string) string {
	t.Helper()
	command := exec.Command("cat")
	command.Dir = dir
	command.SysProcAttr = &syscall.SysProcAttr{
		Credential: &syscall.Credential{Uid: owner.UID, Gid: owner.GID, Groups: owner.Groups}, Unshareflags: syscall.CLONE_NEWNS,
	}
	input, err := command.StdinPipe()
	if err == nil {
		err = command.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = input.Close(); _ = command.Wait() })
	return fmt.Sprintf("/proc/%d", command.Process.Pid)
}

// TestOtherProcessesAreClosed: what the links of another user's process lead to, and what the
// kernel tells only a privileged reader, is not read, however the path is spelled.
func TestOtherProcessesAreClosed(t *testing.T) {
	private := home(t, ann)
	other := process(t, ann, private)
	own := home(t, bob)
	bound := filepath.Join(own, "bound") // of procfs, by an administrator
	err := errors.Join(os.Mkdir(bound, 0o755), os.Symlink(other+"/cwd/notes", own+"/link"), os.Symlink("/proc", own+"/p"),
		os.Symlink("link", own+"/link2"), unix.Mount("/proc", bound, "", unix.MS_BIND, ""))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Unmount(bound, unix.MNT_DETACH) })
	pid := strings.TrimPrefix(other, "/proc/")
	for _, path := range []string{
		other + "/cwd/notes", other + "/root" + private + "/notes", other + "/root/etc/passwd", other + "/maps", other + "/root/dev/shm/x",
		"/proc/kallsyms", "/proc/iomem", "/proc/self/maps", "/proc/self/fd/1", "/proc/thread-self/maps", "/sys/kernel/vmcoreinfo",
		own + "/link", own + "/link2", own + "/p/kallsyms", own + "/p/" + pid + "/cwd/notes", bound + "/kallsyms",
		bound + "/" + pid + "/cwd/notes", own + "/../../.." + other + "/cwd/notes", "/etc/../proc/../proc/kallsyms", "//proc//kallsyms",
		"/proc/sys/../kallsyms", "/dev/fd/1", "/dev/stdout",
	} {
		file, err := Read(bob, path)
		if err == nil {
			text, _ := io.ReadAll(io.LimitReader(file, 80))
			t.Errorf("%s was opened: %q", path, text)
			_ = file.Close()
		} else if !errors.Is(err, ErrKernelFiles) && !errors.Is(err, fs.ErrPermission) && !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: %v", path, err)
		}
		if folder, err := folderAs(bob, filepath.Dir(path)); err == nil && strings.Contains(path, "proc") && !strings.HasPrefix(path, own) {
			t.Errorf("the folder of %s was opened as %s", path, folder.Path)
		}
	}
}

func folderAs(owner Owner, path string) (folder *Folder, err error) {
	err = As(owner, func() (err error) {
		if folder, err = OpenFolder(path); err == nil {
			err = folder.Close()
		}
		return err
	})
	return folder, err
}

// TestThreadHasNoCapabilities: one is enough to follow the links of other processes.
func TestThreadHasNoCapabilities(t *testing.T) {
	other := process(t, ann, home(t, ann))
	err := As(bob, func() error {
		if _, err := os.Open(other + "/cwd/notes"); !errors.Is(err, fs.ErrPermission) {
			t.Errorf("a link of another user's process: %v", err)
		}
		status, err := os.ReadFile("/proc/thread-self/status")
		for _, set := range []string{"CapInh", "CapPrm", "CapEff", "CapAmb"} {
			if !strings.Contains(string(status), set+":\t0000000000000000\n") {
				t.Errorf("%s is not empty:\n%s", set, status)
			}
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
	if err := os.WriteFile(home(t, ann)+"/roots", nil, 0o600); err != nil { // another thread
		t.Errorf("root afterwards: %v", err)
	}
}

// TestOwnFilesAreRead: links, "..", folders and files of the user's own, and root's.
func TestOwnFilesAreRead(t *testing.T) {
	dir := home(t, bob)
	err := errors.Join(os.Symlink("notes", dir+"/relative"), os.Symlink(dir+"/relative", dir+"/absolute"), os.Symlink("loop", dir+"/loop"),
		os.Mkdir(dir+"/sub", 0o755), os.Symlink("../notes", dir+"/sub/up"), unix.Mkfifo(dir+"/fifo", 0o666), os.Chmod(dir+"/fifo", 0o666))
	if err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]error{
		"/notes": nil, "/relative": nil, "/absolute": nil, "/sub/up": nil, "/sub/../notes": nil, "/./sub//up": nil,
		"/loop": unix.ELOOP, "/none": fs.ErrNotExist, "/fifo": ErrNotRegular, "/sub": ErrNotRegular, "/notes/": unix.ENOTDIR, "/notes/x": unix.ENOTDIR,
	} {
		for _, owner := range []Owner{bob, {}} {
			file, err := Read(owner, dir+path)
			if !errors.Is(err, want) || want == nil && err != nil {
				t.Errorf("%s as %d: %v, want %v", path, owner.UID, err, want)
			}
			if err == nil {
				_ = file.Close()
			}
		}
		if _, err := Read(ann, dir+path); !errors.Is(err, fs.ErrPermission) {
			t.Errorf("%s as another user: %v", path, err)
		}
	}
	if _, err := Read(bob, "notes"); !errors.Is(err, unix.EINVAL) {
		t.Errorf("a relative path: %v", err)
	}
}

// TestLinksOfOthersInSharedFolders: as the kernel does by default, in folders such as /tmp only
// links of one's own, or of the folder's owner, are followed.
func TestLinksOfOthersInSharedFolders(t *testing.T) {
	dir := home(t, bob)
	shared := filepath.Join(filepath.Dir(dir), "shared")
	err := errors.Join(os.Mkdir(shared, 0o755), os.Chmod(shared, 0o777|os.ModeSticky), os.Symlink("/etc/passwd", shared+"/l"))
	if err != nil {
		t.Fatal(err)
	}
	for uid, want := range map[int]error{0: nil, 1001: nil, 1000: fs.ErrPermission} {
		if err := os.Lchown(shared+"/l", uid, uid); err != nil {
			t.Fatal(err)
		}
		file, err := Read(bob, shared+"/l")
		if !errors.Is(err, want) || want == nil && err != nil {
			t.Errorf("a link of user %d: %v", uid, err)
		}
		if err == nil {
			_ = file.Close()
		}
	}
}

// TestFolderBeneath: links are followed in the allowed folders, and reported where they lead out.
func TestFolderBeneath(t *testing.T) {
	top := home(t, ann)
	other := home(t, ann)
	err := errors.Join(os.MkdirAll(top+"/a/b", 0o755), os.Mkdir(other+"/c", 0o755), os.Symlink("/", top+"/root"), os.Symlink(top+"/a", top+"/in"),
		os.Symlink("../../..", top+"/a/out"), os.Symlink(other+"/c", top+"/over"), os.Symlink("in/b", top+"/deep"))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		path, want string
		links      int
		err        error
	}{
		{top + "/a/b", top + "/a/b", 0, nil}, {top + "/in/b", top + "/a/b", 1, nil}, {top + "/deep", top + "/a/b", 2, nil},
		{top + "/over/../c", other + "/c", 1, nil}, {top + "/a/b/../../a", top + "/a", 0, nil}, {top, top, 0, nil},
		{top + "/root", "", 1, ErrOutside}, {top + "/root/etc", "", 1, ErrOutside}, {top + "/in/out", "", 2, ErrOutside},
		{top + "/../home/a", top + "/a", 0, nil}, {top + "/..", "", 0, ErrOutside}, {"/etc", "", 0, ErrOutside}, {top + "/none", "", 0, fs.ErrNotExist},
	} {
		folder, err := OpenFolderBeneath(c.path, top, other)
		if !errors.Is(err, c.err) || (err == nil) != (c.err == nil) || folder != nil && (folder.Path != c.want || len(folder.Links) != c.links) {
			t.Errorf("%s: %+v, %v; want %q by %d links, %v", c.path, folder, err, c.want, c.links, c.err)
		}
		if err == nil {
			_ = folder.Close()
		}
	}
}
