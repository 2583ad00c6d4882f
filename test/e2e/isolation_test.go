package e2e

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	greylagv1 "github.com/greylag/greylag/api/gen/greylag/v1"
	"github.com/greylag/greylag/internal/image/ociimage"
	"github.com/greylag/greylag/internal/wire"
)

// devices checks that a job opens its GPUs and no others, as a user and as root.
func devices(s *site) {
	s.needsContainers("device isolation")
	for _, as := range []account{alice, tester} {
		id := s.gsubmit(as, "--gpus=2", s.script(`
opens() { test -c $1 && (exec 3<>$1) 2>/dev/null && echo -n "yes " || echo -n "no "; }
for n in 0 1 2 3; do opens /dev/nvidia$n; done
sleep 1
n=0
for own in ${GREYLAG_JOB_GPU_INDEXES//,/ }; do n=$((n+1)); test -c /dev/nvidia$own || echo missing $own; done
echo "own $n as $CUDA_VISIBLE_DEVICES"`))
		s.ends(id, "COMPLETED")
		got := s.output("greylag-%d.out", id)
		if strings.Count(got, "yes") != 2 || strings.Count(got, "no ") != 2 || !strings.Contains(got, "own 2 as 0,1\n") || strings.Contains(got, "missing") {
			s.t.Errorf("user %d: the GPUs 0 to 3 open: %s", as, got)
		}
	}
	s.foreignDevice()
	s.otherNodesDevice()
}

// foreignDevice checks that root inside a job cannot open a device node that it creates: the kernel
// asks the control group.
func (s *site) foreignDevice() {
	s.t.Helper()
	rdev := s.gpuNumber(0, 0)
	id := s.gsubmit(tester, s.script(fmt.Sprintf(
		`mknod /tmp/gpu c %d %d && echo made; (exec 3<>/tmp/gpu) 2>/dev/null && echo opened`, rdev>>8, rdev&0xff)))
	s.ends(id, "FAILED")
	if got := s.output("greylag-%d.out", id); strings.Contains(got, "opened") {
		s.t.Errorf("a job without GPUs opened one: %s", got)
	}
}

// otherNodesDevice checks that nodes that simulate their GPUs on one machine have devices of
// different numbers; otherwise the kernel would let a job of one open those of the other.
func (s *site) otherNodesDevice() {
	s.t.Helper()
	owners := map[uint64]int{}
	for node := range s.Nodes() {
		for gpu := range 4 {
			number := s.gpuNumber(node, gpu)
			if other, taken := owners[number]; taken {
				s.t.Errorf("GPU %d of node %d has the device number %#x of one of node %d", gpu, node, number, other)
			}
			owners[number] = node
		}
	}
}

// gpuNumber returns the device number of a node's GPU.
func (s *site) gpuNumber(node, gpu int) uint64 {
	s.t.Helper()
	info, err := os.Stat(filepath.Join(s.gpuDir(node), fmt.Sprintf("nvidia%d", gpu)))
	s.must(err)
	return info.Sys().(*syscall.Stat_t).Rdev
}

// gpuDir returns the folder of a node's simulated GPUs.
func (s *site) gpuDir(node int) string {
	s.t.Helper()
	var found string
	s.must(filepath.WalkDir(filepath.Join(s.Dir, fmt.Sprintf("n%d", node+1)), func(path string, d os.DirEntry, err error) error {
		switch {
		case err != nil:
			return nil
		case d.Name() == "host": // the host's whole file system, bound
			return filepath.SkipDir
		case d.Name() == "nvidia0":
			found = filepath.Dir(path)
			return filepath.SkipAll
		}
		return nil
	}))
	return found
}

func imageJob(s *site) {
	s.needsContainers("images")
	archive := filepath.Join(s.Work, "small.tar")
	image, err := ociimage.Unix()
	s.must(err)
	_, err = ociimage.WriteFile(archive, image)
	s.must(err)
	script := filepath.Join(s.Work, "image.sh")
	s.must(os.WriteFile(script, []byte("#!/bin/sh\ncat /etc/greylag-image\nid -u\ntest -e /usr/bin/bash && echo host\npwd\nexit 6\n"), 0o755))
	id := s.gsubmit(alice, "--image=oci-archive:"+archive, "--gpus=1", script)
	if job := s.ends(id, "FAILED"); job.ExitCode != 6 {
		s.t.Errorf("exit code %d, want 6: %v", job.ExitCode, job.Tasks)
	}
	if got, want := s.output("greylag-%d.out", id), "small test image\n1\n"+s.Work+"\n"; got != want {
		s.t.Errorf("in the image: %q, want %q", got, want)
	}
	mountsInImage(s, archive)
	none := s.gsubmit(alice, "--image=oci-archive:/no/such.tar", script)
	if job := s.ends(none, "FAILED"); job.Reason != greylagv1.Reason_REASON_IMAGE_FAILED {
		s.t.Errorf("an image that is not there: %s %s", wire.Word(job.Reason), job.Detail)
	}
}

// mountsInImage checks that a job sees the directories that it asks for, and none that its user may not enter.
func mountsInImage(s *site, archive string) {
	data, private := filepath.Join(s.Dir, "sets"), filepath.Join(s.Dir, "private")
	s.must(errors.Join(os.Mkdir(data, 0o755), os.WriteFile(filepath.Join(data, "x"), []byte("mounted\n"), 0o644), os.Mkdir(private, 0o700), os.Mkdir(filepath.Join(private, "in"), 0o755)))
	job := []string{"--image=oci-archive:" + archive, "--mount=" + data + ":/data/set:ro"}
	id := s.gsubmit(alice, append(job, "--wrap=cat /data/set/x; touch /data/set/y 2>/dev/null || echo read-only; exit 6")...)
	s.ends(id, "FAILED") // the audit wants a record of the site's script from each that completes
	if got, want := s.output("greylag-%d.out", id), "mounted\nread-only\n"; got != want {
		s.t.Errorf("with a mount: %q, want %q", got, want)
	}
	if out := s.ok(alice, "gctl", "show", "job", ref(id), "--json"); !strings.Contains(out, data+`:/data/set:ro"`) {
		s.t.Errorf("gctl show does not have the mount: %s", out)
	}
	id = s.gsubmit(alice, append(job, "--mount="+private+"/in:/in", "--wrap=true")...)
	if job := s.ends(id, "FAILED"); !strings.Contains(job.Detail, "permission denied") {
		s.t.Errorf("another user's directory: %s", job.Detail)
	}
}

// outputs checks that outputs are the user's own files, named by the patterns.
func outputs(s *site) {
	needsRoot(s.t, "a second user")
	id := s.gsubmit(alice, "--name=out", "--output=%x-%j-%u.txt", "--error=%x-%j.err", s.script("echo to stdout; echo to stderr >&2; id -u; umask"))
	s.ends(id, "COMPLETED")
	name := fmt.Sprintf("out-%d-daemon.txt", id)
	if got := s.output("%s", name); !strings.HasPrefix(got, "to stdout\n") {
		s.t.Errorf("output: %q", got)
	}
	if got := s.output("out-%d.err", id); got != "to stderr\n" {
		s.t.Errorf("error: %q", got)
	}
	info, err := os.Stat(filepath.Join(s.Work, name))
	s.must(err)
	if owner := info.Sys().(*syscall.Stat_t).Uid; s.Containerized() && owner != uint32(alice) {
		s.t.Errorf("the output belongs to user %d, want %d", owner, alice)
	}
}

// symlink checks that a user who directs the output at another user's file does not reach it.
func symlink(s *site) {
	needsRoot(s.t, "a second user")
	s.needsContainers("tasks as their users")
	victim := filepath.Join(s.Work, "victim")
	s.must(os.WriteFile(victim, []byte("precious\n"), 0o644))
	trap := filepath.Join(s.Work, "trap")
	s.must(os.Symlink(victim, trap))
	id := s.gsubmit(alice, "--output="+trap, s.script("echo overwritten"))
	s.ends(id, "FAILED")
	if got := s.output("victim"); got != "precious\n" {
		s.t.Errorf("the other's file holds %q", got)
	}
}

// users checks that users cannot change other users' jobs nor see more of them than a queue shows.
func users(s *site) {
	needsRoot(s.t, "two more users")
	script := s.script("true # secret")
	id := s.gsubmit(alice, "--hold", "--comment=private", script)
	for _, command := range [][]string{
		{"gcancel", ref(id)}, {"gctl", "release", ref(id)}, {"gctl", "script", ref(id)}, {"gctl", "logs", ref(id)},
		{"gctl", "update", "job", ref(id), "name=mine"}, {"gctl", "requeue", ref(id)}, {"gctl", "drain", s.Node(0).Name, "--reason", "no"},
		{"gctl", "cluster", "token", "--role", "node"},
	} {
		if result := s.run(bob, command[0], command[1:]...); result.Exit != 4 {
			s.t.Errorf("%v as another user: exit status %d, %s%s", command, result.Exit, result.Stdout, result.Stderr)
		}
	}
	seen := s.ok(bob, "gctl", "show", "job", ref(id), "--json")
	for _, secret := range []string{"private", s.Work, "secret"} {
		if strings.Contains(seen, secret) {
			s.t.Errorf("another user sees %q in %s", secret, seen)
		}
	}
	if own := s.ok(alice, "gctl", "script", ref(id)); !strings.Contains(own, "secret") {
		s.t.Errorf("the owner's script: %q", own)
	}
	s.ok(alice, "gcancel", ref(id))
	s.ends(id, "CANCELLED")
}
