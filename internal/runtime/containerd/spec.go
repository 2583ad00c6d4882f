//go:build linux

package containerd

import (
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/greylag/greylag/internal/runtime"
)

// Paths at which a task sees its directory, its first process and the program for its steps. They are below /dev, which is
// always the task's own file system: nothing is created on the host or in an image.
const (
	insideDir    = "/dev/.greylag"
	insideGInit  = "/dev/.greylag-init"
	insideGStepd = "/dev/.greylag-stepd"
)

// frame holds what all containers of this node share, computed once.
type frame struct {
	config    Config
	unified   bool // cgroup version 2
	swapLimit bool
	userCaps  *specs.LinuxCapabilities
	rootCaps  *specs.LinuxCapabilities
	rlimits   []specs.POSIXRlimit
	oomScore  int // added to the kernel's score when the host runs out of memory
}

// newFrame computes the values that do not depend on the task.
func newFrame(config Config, unified, swapLimit bool) *frame {
	f := &frame{config: config, unified: unified, swapLimit: swapLimit, rlimits: rlimits(), oomScore: oomScore()}
	// ginit of a user's task: switches to the user and signals the user's processes.
	f.userCaps = capabilities("CAP_SETUID", "CAP_SETGID", "CAP_KILL")
	// Root's own tasks get containerd's default capabilities.
	f.rootCaps = capabilities("CAP_CHOWN", "CAP_DAC_OVERRIDE", "CAP_FSETID", "CAP_FOWNER", "CAP_MKNOD",
		"CAP_NET_RAW", "CAP_SETGID", "CAP_SETUID", "CAP_SETFCAP", "CAP_SETPCAP",
		"CAP_NET_BIND_SERVICE", "CAP_SYS_CHROOT", "CAP_KILL", "CAP_AUDIT_WRITE")
	return f
}

func capabilities(names ...string) *specs.LinuxCapabilities {
	return &specs.LinuxCapabilities{Bounding: names, Effective: names, Permitted: names}
}

// rlimits returns the limits of tasks, instead of those of containerd's service: 1,048,576 files at
// most (programs that close all take minutes), and core dumps. Locked memory is unlimited, as RDMA
// needs, if this process may raise it.
func rlimits() []specs.POSIXRlimit {
	var files, locked, core unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_NOFILE, &files) != nil || unix.Getrlimit(unix.RLIMIT_MEMLOCK, &locked) != nil ||
		unix.Getrlimit(unix.RLIMIT_CORE, &core) != nil {
		return nil // no kernel refuses; otherwise tasks inherit the limits
	}
	if unix.Prlimit(0, unix.RLIMIT_MEMLOCK, &unix.Rlimit{Cur: locked.Cur, Max: unix.RLIM_INFINITY}, nil) == nil {
		locked.Max = unix.RLIM_INFINITY
	}
	return []specs.POSIXRlimit{
		{Type: "RLIMIT_NOFILE", Soft: min(files.Max, 65536), Hard: min(files.Max, 1<<20)},
		{Type: "RLIMIT_MEMLOCK", Soft: locked.Max, Hard: locked.Max},
		{Type: "RLIMIT_CORE", Soft: 0, Hard: core.Max},
	}
}

// oomScore returns the score of this daemon, at least 0: otherwise tasks would inherit that of
// containerd, which its service protects from the kernel's OOM killer.
func oomScore() int {
	text, err := os.ReadFile("/proc/self/oom_score_adj")
	if err != nil {
		return 0
	}
	score, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		return 0
	}
	return max(0, score)
}

// container returns the OCI spec of one task. rootfs is a path that the OCI runtime can pivot into.
// CDI adds the devices afterwards.
func (f *frame) container(task *runtime.Spec, rootfs string, own folders) *specs.Spec {
	caps := f.userCaps
	if task.UID == 0 {
		caps = f.rootCaps
	}
	s := &specs.Spec{
		Version: "1.0.2", // as declared by runc 1.1 and crun 1.8
		Root:    &specs.Root{Path: rootfs},
		Process: &specs.Process{
			Args:            []string{insideGInit, insideDir},
			Env:             []string{"PATH=/usr/bin:/bin"}, // for ginit; its order has the task's
			Cwd:             "/",
			Capabilities:    caps,
			NoNewPrivileges: true,
			Rlimits:         f.rlimits,
			OOMScoreAdj:     &f.oomScore,
		},
		Mounts: f.mounts(task, own),
		Linux: &specs.Linux{
			CgroupsPath: f.cgroupsPath(task.ID),
			Resources:   f.resources(task),
			Namespaces:  f.namespaces(),
			MaskedPaths: masked(),
			ReadonlyPaths: []string{"/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys",
				"/proc/sysrq-trigger"},
			RootfsPropagation: "rslave",
		},
	}
	if task.Image == "" {
		// Access to the socket of a shim gives control of its task and of programs on the host.
		s.Linux.MaskedPaths = append(s.Linux.MaskedPaths, f.config.hidden()...)
	}
	return s
}

// namespaces returns the namespaces of a task. The network and host name are the host's, which MPI
// and RDMA need; processes, shared memory and mounts are the task's own.
func (f *frame) namespaces() []specs.LinuxNamespace {
	list := []specs.LinuxNamespace{
		{Type: specs.PIDNamespace}, {Type: specs.IPCNamespace}, {Type: specs.MountNamespace},
	}
	if f.unified {
		list = append(list, specs.LinuxNamespace{Type: specs.CgroupNamespace})
	}
	return list
}

// masked lists the paths that show or control the whole host.
func masked() []string {
	return []string{"/proc/acpi", "/proc/asound", "/proc/kcore", "/proc/keys", "/proc/latency_stats",
		"/proc/timer_list", "/proc/timer_stats", "/proc/sched_debug", "/proc/scsi",
		"/sys/firmware", "/sys/devices/virtual/powercap"}
}

// resources returns the limits of the task's control group.
func (f *frame) resources(task *runtime.Spec) *specs.LinuxResources {
	r := &specs.LinuxResources{
		// CDI allows each device. The OCI runtime itself adds null, zero, full, random, urandom,
		// tty and ptys.
		Devices: []specs.LinuxDeviceCgroup{{Allow: false, Access: "rwm"}},
	}
	if task.Memory > 0 {
		limit := int64(min(task.Memory, 1<<62))
		r.Memory = &specs.LinuxMemory{Limit: &limit}
		if f.swapLimit {
			r.Memory.Swap = &limit // memory and swap together
		}
	}
	if task.PidsLimit > 0 {
		limit := task.PidsLimit
		r.Pids = &specs.LinuxPids{Limit: &limit}
	}
	if task.CPUs > 0 || task.CPUSet != "" {
		r.CPU = &specs.LinuxCPU{Cpus: task.CPUSet}
	}
	if task.CPUs > 0 {
		shares := uint64(min(task.CPUs, 256)) * 1024 // 262144 is the kernel's maximum
		r.CPU.Shares = &shares
	}
	if task.CPUs > 0 && task.CPUSet == "" {
		period, quota := uint64(100_000), int64(task.CPUs)*100_000
		r.CPU.Period, r.CPU.Quota = &period, &quota
	}
	return r
}

// cgroupsPath returns the path in the form that the OCI runtime's cgroup driver expects.
func (f *frame) cgroupsPath(id runtime.TaskID) string {
	if *f.config.Systemd {
		return f.config.CgroupParent + ":" + scopePrefix(f.config) + ":" + id.String()
	}
	return filepath.Join("/", f.config.CgroupParent, id.String())
}

// scopePrefix returns the prefix of the names of systemd scopes. It contains the namespace, since
// scopes of all slices share their names.
func scopePrefix(config Config) string {
	if config.Namespace == defaultNamespace {
		return "greylag"
	}
	return "greylag-" + config.Namespace
}

// ownGroup is the path at which a task sees its version 2 control group.
const ownGroup = "/sys/fs/cgroup"

// folders are the host directories of one task.
type folders struct {
	task   string // its taskdir
	ginit  string
	gstepd string // empty if tasks have no steps
	tmp    string // empty if /tmp is not private
}

// mounts returns the whole mount list; the order matters.
func (f *frame) mounts(task *runtime.Spec, own folders) []specs.Mount {
	var list []specs.Mount
	if own.tmp != "" {
		list = append(list, bind(filepath.Join(own.tmp, "tmp"), "/tmp", false),
			bind(filepath.Join(own.tmp, "var"), "/var/tmp", false))
	}
	for _, m := range task.Mounts {
		list = append(list, bind(m.Source, m.Target, m.ReadOnly))
	}
	// After the user's mounts, which must not hide these: see checkTargets.
	list = append(list, []specs.Mount{
		{Destination: "/proc", Type: "proc", Source: "proc", Options: []string{"nosuid", "noexec", "nodev"}},
		{Destination: "/dev", Type: "tmpfs", Source: "tmpfs",
			Options: []string{"nosuid", "strictatime", "mode=755", "size=65536k"}},
		{Destination: "/dev/pts", Type: "devpts", Source: "devpts",
			Options: []string{"nosuid", "noexec", "newinstance", "ptmxmode=0666", "mode=0620", "gid=5"}},
		// Without a size: NCCL and data loaders need the space, and the task's memory limit counts
		// it.
		{Destination: "/dev/shm", Type: "tmpfs", Source: "shm",
			Options: []string{"nosuid", "noexec", "nodev", "mode=1777"}},
		{Destination: "/dev/mqueue", Type: "mqueue", Source: "mqueue", Options: []string{"nosuid", "noexec", "nodev"}},
		// A bind mount: a new sysfs cannot be mounted over the host's. Not recursive: a task must
		// not see, and root's must not write, other control groups.
		{Destination: "/sys", Type: "bind", Source: "/sys", Options: []string{"bind", "ro", "nosuid", "noexec", "nodev"}},
	}...)
	if f.unified {
		list = append(list, specs.Mount{Destination: ownGroup, Type: "cgroup", Source: "cgroup",
			Options: []string{"ro", "nosuid", "noexec", "nodev"}})
	}
	if task.Image != "" {
		list = append(list, networkFiles()...)
	}
	list = append(list, bind(own.task, insideDir, false), bind(own.ginit, insideGInit, true))
	if own.gstepd != "" {
		list = append(list, bind(own.gstepd, insideGStepd, true))
	}
	return append(list, commands(task)...)
}

// commands mounts the socket for commands inside the task, and in an image also the commands.
func commands(task *runtime.Spec) (list []specs.Mount) {
	if task.Socket != "" {
		list = append(list, bind(task.Socket, runtime.SocketDir, true))
	}
	if task.MPS != "" {
		list = append(list, bind(task.MPS, runtime.MPSDir, false))
	}
	if task.SharedMemory != "" {
		list = append(list, specs.Mount{Destination: "/dev/shm", Type: "bind", Source: task.SharedMemory,
			Options: []string{"rbind", "nosuid", "noexec", "nodev"}})
	}
	if task.Image == "" {
		return list
	}
	for _, program := range task.Programs {
		list = append(list, bind(program, filepath.Join(runtime.ProgramDir, filepath.Base(program)), true))
	}
	return list
}

// imagePath is the PATH of an image without one.
const imagePath = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// withPrograms appends the directory of Spec.Programs to PATH.
func withPrograms(env []string) []string { return withPath(env, imagePath, runtime.ProgramDir) }

// withDriver appends the directories of the driver's files among the mounts to the search paths of an image. Files in
// the image take precedence, except that an image has no driver.
func withDriver(env []string, mounts []specs.Mount) []string {
	for _, m := range mounts {
		switch path.Dir(m.Destination) {
		case insideLibraries:
			env = withPath(env, "LD_LIBRARY_PATH=", insideLibraries)
		case insideTools:
			env = withPath(env, imagePath, insideTools)
		}
	}
	return env
}

// withoutCovered leaves out the driver's files that lie inside a directory which the job mounts.
func withoutCovered(mounts []specs.Mount, own []runtime.Mount) []specs.Mount {
	return slices.DeleteFunc(mounts, func(m specs.Mount) bool {
		dir := path.Dir(m.Destination)
		return (dir == insideLibraries || dir == insideTools) &&
			slices.ContainsFunc(own, func(o runtime.Mount) bool { return isWithin(m.Destination, filepath.Clean(o.Target)) })
	})
}

// withPath appends a directory to the list of directories in a variable, unless it is there. usual is the entry
// where the environment has none.
func withPath(env []string, usual, dir string) []string {
	name := nameOf(usual)
	at := slices.IndexFunc(env, func(entry string) bool { return nameOf(entry) == name })
	env = slices.Clone(env)
	if at < 0 {
		at, env = len(env), append(env, usual)
	}
	list := strings.TrimPrefix(env[at], name+"=")
	switch {
	case list == "":
		env[at] = name + "=" + dir
	case !slices.Contains(strings.Split(list, ":"), dir):
		env[at] += ":" + dir
	}
	return env
}

// networkFiles gives a task with an image the host names of the network that it shares with the
// host.
func networkFiles() []specs.Mount {
	var list []specs.Mount
	for _, file := range []string{"/etc/resolv.conf", "/etc/hosts", "/etc/hostname"} {
		if info, err := os.Stat(file); err == nil && info.Mode().IsRegular() {
			list = append(list, bind(file, file, true))
		}
	}
	return list
}

// bind mounts source at target. It names neither exec nor noexec, which clears a noexec of the
// source's file system, such as that of /run on some distributions.
func bind(source, target string, readOnly bool) specs.Mount {
	options := []string{"rbind", "nosuid", "nodev"}
	if readOnly {
		options = append(options, "ro")
	}
	return specs.Mount{Destination: target, Type: "bind", Source: source, Options: options}
}

// environment returns base overridden by over, in the order of base; the last entry of a name
// counts. NVIDIA_VISIBLE_DEVICES is always "void": a legacy NVIDIA hook must not add devices that
// an image requests.
func environment(base, over []string) []string {
	const legacy = "NVIDIA_VISIBLE_DEVICES"
	merged := make([]string, 0, len(base)+len(over)+1)
	at := make(map[string]int, len(base)+len(over))
	for _, entry := range slices.Concat(base, over) {
		name := nameOf(entry)
		if i, ok := at[name]; ok {
			merged[i] = entry
			continue
		}
		if name != "" && name != legacy {
			at[name] = len(merged)
			merged = append(merged, entry)
		}
	}
	return append(merged, legacy+"=void")
}

func nameOf(entry string) string {
	for i := range len(entry) {
		if entry[i] == '=' {
			return entry[:i]
		}
	}
	return ""
}
