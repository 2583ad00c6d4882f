//go:build linux

package containerd

import (
	"cmp"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/greylag/greylag/internal/cgroup"
	"github.com/greylag/greylag/internal/runtime"
	"github.com/greylag/greylag/internal/runtime/oci"
)

func config(t *testing.T, change func(*Config)) Config {
	t.Helper()
	systemd := false
	c := Config{GInit: "/ginit", OCIRuntime: "/bin/true", Systemd: &systemd}
	change(&c)
	return must(c.withDefaults(false))(t)
}

// TestCgroupsPath checks that the group created by the OCI runtime is the one that this package
// reads, with and without systemd.
func TestCgroupsPath(t *testing.T) {
	yes, id := true, runtime.TaskID{Job: 7, Attempt: 2}
	cases := []struct {
		change          func(*Config)
		passed, checked string
	}{
		{func(*Config) {}, "/greylag/j7-a2", "/greylag/j7-a2"},
		{func(c *Config) { c.CgroupParent = "a/b" }, "/a/b/j7-a2", "/a/b/j7-a2"},
		{func(c *Config) { c.Systemd = &yes }, "greylag-jobs.slice:greylag:j7-a2", "/greylag.slice/greylag-jobs.slice/greylag-j7-a2.scope"},
		{func(c *Config) { c.Systemd, c.Namespace, c.CgroupParent = &yes, "n2", "x.slice" }, "x.slice:greylag-n2:j7-a2", "/x.slice/greylag-n2-j7-a2.scope"},
	}
	for _, c := range cases {
		config := config(t, c.change)
		r := &Runtime{config: config, frame: newFrame(config, true, true)}
		if got := r.frame.cgroupsPath(id); got != c.passed {
			t.Errorf("passed %s, want %s", got, c.passed)
		}
		if got := r.group(id).Path(); got != c.checked {
			t.Errorf("checked %s, want %s", got, c.checked)
		}
	}
}

func TestConfigRefused(t *testing.T) {
	yes, openToAll := true, filepath.Join(t.TempDir(), "logins")
	if err := os.WriteFile(openToAll, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	for _, change := range []func(*Config){
		func(c *Config) { c.GInit = "ginit" }, func(c *Config) { c.Namespace = "a b" },
		func(c *Config) { c.OCIRuntime = "/no/such/runtime" },
		func(c *Config) { c.OCIRuntime = "/bin/false" },
		func(c *Config) { c.Systemd, c.CgroupParent = &yes, "/greylag" },
		func(c *Config) { c.Logins = openToAll },
	} {
		c := Config{GInit: "/ginit", OCIRuntime: "/bin/true"}
		change(&c)
		if _, err := c.withDefaults(false); !errors.Is(err, runtime.ErrUnfit) || strings.Count(err.Error(), "container runtime") != 1 {
			t.Errorf("%+v: %v", c, err)
		}
	}
}

// TestUnifiedSpec checks that on version 2 a task has a cgroup namespace and sees its group
// read-only.
func TestUnifiedSpec(t *testing.T) {
	task := runtime.Spec{Owner: runtime.Owner{UID: 1000}, Args: []string{"true"}, CPUs: 2, Memory: 1 << 30, PidsLimit: 10}
	s := newFrame(config(t, func(*Config) {}), true, true).container(&task, "/root", folders{task: "/t", ginit: "/g"})
	if !slices.ContainsFunc(s.Linux.Namespaces, func(n specs.LinuxNamespace) bool { return n.Type == specs.CgroupNamespace }) {
		t.Error("no cgroup namespace")
	}
	at := slices.IndexFunc(s.Mounts, func(m specs.Mount) bool { return m.Destination == "/sys/fs/cgroup" })
	if at < 0 || s.Mounts[at].Type != "cgroup" || !slices.Contains(s.Mounts[at].Options, "ro") {
		t.Errorf("%+v", s.Mounts)
	}
	r := s.Linux.Resources
	if *r.Memory.Limit != 1<<30 || *r.Memory.Swap != 1<<30 || *r.Pids.Limit != 10 || *r.CPU.Quota != 200_000 || *r.CPU.Shares != 2048 {
		t.Errorf("%+v", r)
	}
	if len(r.Devices) != 1 || r.Devices[0].Allow {
		t.Errorf("devices %+v", r.Devices)
	}
	task.CPUSet = "0-1"
	if r := newFrame(config(t, func(*Config) {}), true, true).resources(&task); r.CPU.Quota != nil || r.CPU.Cpus != "0-1" {
		t.Errorf("%+v", r.CPU)
	}
}

func TestEnvironment(t *testing.T) {
	got := environment([]string{"A=1", "PATH=/image", "NVIDIA_VISIBLE_DEVICES=all"}, []string{"B=2", "PATH=/mine", "B=3", "", "=x"})
	if want := "A=1 PATH=/mine B=3 NVIDIA_VISIBLE_DEVICES=void"; strings.Join(got, " ") != want {
		t.Errorf("%q", got)
	}
}

// TestCommandsOfATask checks that a task sees the directory of its socket read-only, and that in an
// image the commands are at the end of PATH.
func TestCommandsOfATask(t *testing.T) {
	task := runtime.Spec{Args: []string{"true"}, Socket: "/run/s/12.1", Programs: []string{"/usr/bin/gctl"}}
	f := newFrame(config(t, func(*Config) {}), true, true)
	shown := func() (list []string) {
		for _, m := range f.mounts(&task, folders{task: "/t", ginit: "/g"}) {
			if strings.HasPrefix(m.Destination, "/dev/greylag/") && slices.Contains(m.Options, "ro") {
				list = append(list, m.Source+" "+m.Destination)
			}
		}
		return list
	}
	if got := strings.Join(shown(), ", "); got != "/run/s/12.1 /dev/greylag/job" {
		t.Errorf("on the host: %s", got)
	}
	task.Image = "image"
	if got := strings.Join(shown(), ", "); got != "/run/s/12.1 /dev/greylag/job, /usr/bin/gctl /dev/greylag/bin/gctl" {
		t.Errorf("in an image: %s", got)
	}
	for env, want := range map[string]string{
		"A=1 PATH=/bin B=2":     "A=1 PATH=/bin:/dev/greylag/bin B=2",
		"A=1":                   "A=1 " + imagePath + ":/dev/greylag/bin",
		"PATH=/dev/greylag/bin": "PATH=/dev/greylag/bin",
	} {
		if got := strings.Join(withPrograms(strings.Fields(env)), " "); got != want {
			t.Errorf("%s: %s, want %s", env, got, want)
		}
	}
}

// TestSharedMemoryOfATask checks that a client of an MPS daemon has the daemon's /dev/shm, never the node's.
func TestSharedMemoryOfATask(t *testing.T) {
	f := newFrame(config(t, func(*Config) {}), true, true)
	for _, shared := range []string{"", "/run/m/gpu0/shm"} {
		task := runtime.Spec{Args: []string{"true"}, MPS: "/run/m/gpu0/pipe", SharedMemory: shared}
		source := ""
		for _, m := range f.mounts(&task, folders{task: "/t", ginit: "/g"}) {
			if m.Destination == "/dev/shm" {
				source = m.Source
			}
		}
		if want := cmp.Or(shared, "shm"); source != want {
			t.Errorf("/dev/shm is %s, want %s", source, want)
		}
	}
}

func TestRecent(t *testing.T) {
	for version, want := range map[string]bool{
		"1.6.20~ds1": true, "v2.4.2": true, "1.7.0": true, "1.6.19": false, "v1.6.8-k3s1": false, "1.5.99": false,
		"0.9.9": false, "2.0.0-rc.1": true, "": true, "main": true, "1.6": true,
	} {
		if got := recent(version); got != want {
			t.Errorf("%q: %v", version, got)
		}
	}
}

func FuzzParseMounts(f *testing.F) {
	f.Add(`45 27 0:41 / /run/a\040b rw,relatime unbindable - tmpfs tmpfs rw` + "\n")
	f.Add("27 1 254:0 / / rw,relatime shared:1 master:2 - ext4 /dev/vda rw\n")
	f.Fuzz(func(t *testing.T, text string) {
		for _, m := range parseMounts(text) {
			if m.unbindable && !strings.Contains(text, "unbindable") {
				t.Errorf("%q: %+v", text, m)
			}
		}
	})
}

func TestDetectHere(t *testing.T) {
	hierarchy, err := cgroup.Detect()
	if errors.Is(err, cgroup.ErrNoCgroups) {
		t.Skip("needs control groups: ", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	if runtime, _, err := oci.Find("", hierarchy.Mixed()); err == nil && hierarchy.Mixed() && strings.HasSuffix(runtime, "crun") {
		t.Error("crun refuses this host's control groups")
	}
}

// TestCrunIsKnownByItsWord checks that crun is recognized by its version text, not by its name.
func TestCrunIsKnownByItsWord(t *testing.T) {
	crun := filepath.Join(t.TempDir(), "oci")
	if err := os.WriteFile(crun, []byte("#!/bin/sh\necho crun version 1.8\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	if _, _, err := oci.Find(crun, true); !errors.Is(err, runtime.ErrUnfit) {
		t.Errorf("control groups of both versions: %v", err)
	}
	if path, is, err := oci.Find(crun, false); err != nil || path != crun || !is {
		t.Errorf("of one version: %q, %v", path, err)
	}
}

// TestGroupOf checks that nodes of two clusters on one machine have different groups, also with
// equal names and task numbers, and that the only node of a host has its plain name.
func TestGroupOf(t *testing.T) {
	first, second, host := GroupOf("n1", "a-1"), GroupOf("n1", "b-1"), GroupOf("n1", "greylag")
	if first == second || first == host || strings.Contains(host, "n1-") {
		t.Errorf("%s, %s, %s", first, second, host)
	}
}
