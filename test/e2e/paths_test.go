package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	greylagv1 "github.com/greylag/greylag/api/gen/greylag/v1"
	"github.com/greylag/greylag/internal/image/ociimage"
	"github.com/greylag/greylag/internal/wire"
)

// privateHome returns a folder that only bob may enter, with files that all users may read.
func privateHome(s *site) string {
	s.t.Helper()
	home, err := os.MkdirTemp(s.Work, "home-")
	s.must(err)
	image, err := ociimage.Unix()
	s.must(err)
	_, err = ociimage.WriteFile(home+"/v.tar", image)
	s.must(err)
	s.must(os.WriteFile(home+"/notes", []byte("confidential\n"), 0o644))
	for _, path := range []string{"", "/notes", "/v.tar"} {
		s.must(os.Chown(home+path, int(bob), int(bob)))
	}
	return home
}

// processIn returns the folder in /proc of a process that works in a folder.
func processIn(s *site, folder string) (found string) {
	s.t.Helper()
	want, err := os.Stat(folder)
	s.must(err)
	s.until("a process works in "+folder, func() (bool, error) {
		all, err := filepath.Glob("/proc/[0-9]*")
		for _, process := range all {
			if at, err := os.Stat(process + "/cwd"); err == nil && os.SameFile(at, want) {
				found = process
			}
		}
		return found != "", err
	})
	return found
}

// othersFiles checks that no path that a user names leads the node to what only another user's
// process, the kernel or the node's own daemon may see.
func othersFiles(s *site) {
	needsRoot(s.t, "two users")
	s.needsContainers("tasks as their users")
	home := privateHome(s)
	running := s.gsubmit(bob, "--chdir="+home, "--output=/dev/null", s.script(
		"echo confidential >/tmp/secret; echo confidential >/dev/shm/x; chmod 644 /tmp/secret /dev/shm/x; sleep 280"))
	s.await(s.t.Context(), running, "RUNNING")
	process := processIn(s, home)
	link := filepath.Join(s.Work, "to-notes")
	s.must(os.Symlink(process+"/cwd/notes", link))
	s.must(os.Lchown(link, int(alice), int(alice)))
	jobs := map[uint64]string{}
	for _, path := range []string{
		process + "/root/tmp/secret", process + "/cwd/notes", process + "/root/dev/shm/x", process + "/maps", link,
		s.Work + "/../../../../../../../.." + process + "/cwd/notes", "/proc/kallsyms", "/proc/iomem", "/proc/self/maps", "/proc/self/fd/1",
	} {
		jobs[s.gsubmit(alice, "--output="+path, s.script("true"))] = path
	}
	image := s.gsubmit(alice, "--image=oci-archive:"+process+"/cwd/v.tar", s.script("true"))
	for id, path := range jobs {
		job := s.ends(id, "FAILED")
		result := s.run(alice, "gctl", "logs", ref(id))
		if result.Exit == 0 || result.Stdout != "" || job.Attempt != 1 {
			s.t.Errorf("--output=%s in attempt %d, gctl logs: exit status %d, %.200q", path, job.Attempt, result.Exit, result.Stdout)
		}
	}
	if job := s.ends(image, "FAILED"); job.Reason != greylagv1.Reason_REASON_IMAGE_FAILED || job.Attempt != 1 {
		s.t.Errorf("an image in another user's folder: attempt %d, %s %s", job.Attempt, wire.Word(job.Reason), job.Detail)
	}
	s.ok(bob, "gcancel", ref(running))
	s.ends(running, "CANCELLED")
}

// workDirs checks that a working directory that is a link in /tmp shows no more of the host than
// the task sees anyway, and that one that cannot be entered is the user's failure, at the first
// attempt.
func workDirs(s *site) {
	needsRoot(s.t, "a second user")
	s.needsContainers("private folders")
	dir, err := os.MkdirTemp("/tmp", "greylag-e2e-")
	s.must(err)
	defer os.RemoveAll(dir)
	s.must(os.Chmod(dir, 0o755))
	other, err := os.MkdirTemp("/tmp", "greylag-other-")
	s.must(err)
	defer os.RemoveAll(other)
	for name, text := range map[string]string{"root": "/", "work": s.Work, "proc": "/proc", "ns": fmt.Sprintf("/proc/%d/ns/mnt", os.Getpid())} {
		s.must(os.Symlink(text, filepath.Join(dir, name)))
	}
	out := func(name string) string { return "--output=" + filepath.Join(s.Work, name) }
	root := s.gsubmit(alice, "--chdir="+dir+"/root", out("in-root"), s.script(
		fmt.Sprintf("ls -d proc/[0-9]* | wc -l; ls dev | grep -c kmsg; ls sys/fs/cgroup | wc -l; ls tmp | grep -c %s", filepath.Base(other))))
	work := s.gsubmit(alice, "--chdir="+dir+"/work", "--output=in-work", s.script("echo works"))
	var bad []uint64
	for _, name := range []string{"proc", "ns", "none"} {
		bad = append(bad, s.gsubmit(alice, "--chdir="+dir+"/"+name, out("none"), s.script("true")))
	}
	bad = append(bad, s.gsubmit(alice, "--chdir=/proc/1/root", out("none"), s.script("true")))
	for _, id := range bad {
		job := s.ends(id, "FAILED")
		if job.Attempt != 1 || job.Reason != greylagv1.Reason_REASON_JOB_LAUNCH_FAILURE || !strings.Contains(job.Detail, "cannot enter the working directory") {
			s.t.Errorf("%s in attempt %d: %s, %s", job.WorkDir, job.Attempt, wire.Word(job.Reason), job.Detail)
		}
	}
	s.ends(root, "FAILED") // grep found nothing
	var processes, devices, groups, files int
	_, err = fmt.Sscan(s.output("in-root"), &processes, &devices, &groups, &files)
	if s.must(err); processes > 9 || devices+groups+files != 0 {
		s.t.Errorf("in a link to /: %d processes, %d kernel devices, %d control groups, %d files of others in /tmp", processes, devices, groups, files)
	}
	s.ends(work, "COMPLETED")
	if got := s.output("in-work"); got != "works\n" {
		s.t.Errorf("in a link to %s: %q", s.Work, got)
	}
}
