package packages

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/greylag/greylag/test/cluster"
)

// hang bounds what a test waits for, and scriptTime one command.
const (
	hang       = 3 * time.Minute
	scriptTime = 15 * time.Minute
)

// network is a bridge to which machines are connected.
type network struct{ tag, subnet string }

// newNetwork makes a bridge for the machines of a test.
func newNetwork(t *testing.T) *network {
	sum := sha256.Sum256([]byte(t.TempDir()))
	n := &network{fmt.Sprintf("gp%x", sum[:3]), fmt.Sprintf("10.%d.%d", 128+sum[0]%120, sum[1])}
	must(t, "ip", "link", "add", n.tag, "type", "bridge")
	t.Cleanup(func() { must(t, "ip", "link", "del", n.tag) })
	must(t, "ip", "addr", "add", n.subnet+".254/24", "dev", n.tag)
	must(t, "ip", "link", "set", n.tag, "up")
	return n
}

// machine is a copy of this host that systemd booted in a container: it has the same programs and files,
// and what it changes is lost with it. Of the services only containerd is enabled.
type machine struct {
	t       *testing.T
	name    string
	address string
	space   string // network namespace
	root    string
	spawn   *exec.Cmd
	leader  string // PID of its systemd
	typed   []string
}

// prepare makes a machine, which start boots. number is its place in the network, and names are the
// addresses of all machines. Tests that run at once name their machines differently, since the control
// groups of nodes carry their names.
func (n *network) prepare(t *testing.T, name string, number int, names map[string]string) *machine {
	t.Helper()
	dir, err := os.MkdirTemp("", "greylag-machine-")
	if err != nil {
		t.Fatal(err)
	}
	m := &machine{t: t, name: name, address: fmt.Sprintf("%s.%d", n.subnet, number), space: fmt.Sprintf("%s-%d", n.tag, number),
		root: filepath.Join(dir, "root")}
	t.Cleanup(func() { m.remove(dir) })
	must(t, "mount", "-t", "tmpfs", "-o", "mode=755,size=2g", "tmpfs", dir) // the upper layer of an overlay must not be one
	upper, work := filepath.Join(dir, "upper"), filepath.Join(dir, "work")
	for _, d := range []string{m.root, upper, work} {
		if err := os.Mkdir(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	must(t, "mount", "-t", "overlay", "-o", "lowerdir=/,upperdir="+upper+",workdir="+work, "overlay", m.root)
	hosts := "127.0.0.1 localhost\n"
	for other, address := range names {
		hosts += address + " " + other + "\n"
	}
	m.write("/etc/hosts", hosts)
	m.write("/etc/hostname", name+"\n")
	m.write("/etc/apt/apt.conf.d/zz-test", "APT::Install-Recommends \"false\";\nAPT::Get::Assume-Yes \"true\";\nDpkg::Use-Pty \"false\";\n")
	m.write("/etc/machine-id", "")
	must(t, "sh", "-c", "cd "+m.root+"/etc/systemd/system && rm -rf ./*.wants && mkdir multi-user.target.wants && ln -s /lib/systemd/system/containerd.service multi-user.target.wants/ &&"+
		" ln -sf /dev/null systemd-resolved.service; cd "+m.root+" && rm -rf etc/greylag var/lib/greylag var/lib/containerd etc/apt/sources.list.d etc/apt/sources.list && mkdir etc/apt/sources.list.d")
	must(t, "chroot", m.root, "useradd", "--create-home", "--uid", "4242", "alice")
	link := n.tag + fmt.Sprint("v", number)
	must(t, "ip", "netns", "add", m.space)
	must(t, "ip", "link", "add", link, "type", "veth", "peer", "name", "host0", "netns", m.space)
	must(t, "ip", "link", "set", link, "master", n.tag, "up")
	must(t, "ip", "-n", m.space, "addr", "add", m.address+"/24", "dev", "host0")
	must(t, "ip", "-n", m.space, "link", "set", "host0", "up")
	must(t, "ip", "-n", m.space, "link", "set", "lo", "up")
	return m
}

// start boots the machine's systemd.
func (m *machine) start() {
	m.t.Helper()
	console, err := os.OpenFile(filepath.Join(filepath.Dir(m.root), "console"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		m.t.Fatal(err)
	}
	defer console.Close()
	// Each systemd needs a group of its own, since machines share the host's hierarchies of version 1.
	args := []string{"sh", "-c", `mkdir -p "$0" && echo $$ >"$0/cgroup.procs" && exec unshare --mount --cgroup systemd-nspawn "$@"`, m.group(),
		"--quiet", "--register=no", "--keep-unit", "--boot", "--directory=" + m.root, "--machine=" + m.name, "--hostname=" + m.name,
		"--network-namespace-path=/run/netns/" + m.space, "--capability=CAP_MKNOD,CAP_NET_ADMIN", "--system-call-filter=@keyring bpf", "--link-journal=no",
		"--bind-ro=" + repositories(m.t) + ":/srv/greylag", "--tmpfs=/var/lib/containerd:mode=711"}
	m.spawn = exec.Command(args[0], args[1:]...)
	m.spawn.Env = append(os.Environ(), "SYSTEMD_NSPAWN_UNIFIED_HIERARCHY="+m.unified())
	m.spawn.Stdout, m.spawn.Stderr = console, console
	m.spawn.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := m.spawn.Start(); err != nil {
		m.t.Fatal(err)
	}
}

// booted waits until the machine's systemd has started everything.
func (m *machine) booted() {
	m.t.Helper()
	m.until("systemd runs", func() (bool, error) {
		out, err := exec.Command("pgrep", "-P", fmt.Sprint(m.spawn.Process.Pid)).Output()
		if m.leader = strings.TrimSpace(string(out)); m.leader == "" {
			return false, err
		}
		state, _ := m.try("systemctl is-system-running") // degraded is an exit status of 1
		return strings.HasPrefix(state, "running") || strings.HasPrefix(state, "degraded"), errors.New(state)
	})
	if m.unified() == "0" { // systemd-nspawn mounts these read-only
		m.run("for group in /sys/fs/cgroup/*; do mountpoint -q $group && mount -o remount,rw,bind $group; done")
	}
}

// hierarchies is where control groups of version 1 are mounted.
const hierarchies = "/sys/fs/cgroup"

// unified returns 1 if this host has control groups of version 2 only, otherwise 0.
func (m *machine) unified() string {
	if _, err := os.Stat(hierarchies + "/cgroup.controllers"); err == nil {
		return "1"
	}
	return "0"
}

// group returns the directory of the group in which the machine's systemd runs.
func (m *machine) group() string {
	if m.unified() == "1" {
		return filepath.Join(hierarchies, m.space)
	}
	return filepath.Join(hierarchies, "systemd", m.space)
}

// stop ends the machine like a power failure.
func (m *machine) stop() {
	if m.spawn != nil {
		_ = exec.Command("kill", "-KILL", m.leader).Run()
		_ = m.spawn.Process.Kill()
		_ = m.spawn.Wait() // it was killed
		m.spawn = nil
	}
}

func (m *machine) remove(dir string) {
	if m.t.Failed() {
		log, _ := m.try("journalctl --no-pager -n 60 -u gctld -u gnoded -u gauthd -u containerd")
		console, _ := os.ReadFile(filepath.Join(dir, "console"))
		m.t.Logf("%s: journal:\n%s\nconsole:\n%s", m.name, log, console[max(0, len(console)-2000):])
	}
	m.stop()
	for _, args := range [][]string{{"umount", "-l", m.root}, {"umount", "-l", dir}, {"ip", "netns", "del", m.space}} {
		if out, err := exec.Command(args[0], args[1:]...).CombinedOutput(); err != nil {
			m.t.Errorf("%q: %v: %s", args, err, out)
		}
	}
	os.RemoveAll(dir)
	// Groups of the machine, the innermost first.
	_ = exec.Command("sh", "-c", "find "+m.group()+" "+hierarchies+"/*/greylag/"+m.name+" -depth -type d -exec rmdir {} + 2>/dev/null").Run()
}

// write writes a file of the machine.
func (m *machine) write(path, text string) {
	m.t.Helper()
	full := filepath.Join(m.root, path)
	if err := errors.Join(os.MkdirAll(filepath.Dir(full), 0o755), os.WriteFile(full, []byte(text), 0o644)); err != nil {
		m.t.Fatal(err)
	}
}

// try runs a shell command on the machine as root and returns its standard output, then its errors.
func (m *machine) try(command string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), scriptTime)
	defer cancel()
	c := exec.CommandContext(ctx, "nsenter", "-t", m.leader, "-a", "/bin/sh", "-c", command)
	c.Env = []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/root", "LANG=C.UTF-8", "DEBIAN_FRONTEND=noninteractive"}
	var stderr bytes.Buffer
	c.Stderr = &stderr
	out, err := c.Output()
	return strings.TrimSpace(string(out) + stderr.String()), err
}

// run runs a shell command that must succeed.
func (m *machine) run(command string) string {
	m.t.Helper()
	out, err := m.try(command)
	if err != nil {
		m.t.Fatalf("%s: %s: %v\n%s", m.name, command, err, out)
	}
	return out
}

// types runs a command that an administrator types, which is counted.
func (m *machine) types(command string) string {
	m.t.Helper()
	m.typed = append(m.typed, command)
	return m.run(command)
}

// until waits for a condition.
func (m *machine) until(what string, done func() (bool, error)) {
	m.t.Helper()
	ctx, cancel := context.WithTimeout(m.t.Context(), hang)
	defer cancel()
	if err := cluster.Until(ctx, m.name+": "+what, done); err != nil {
		m.t.Fatal(err)
	}
}

// must runs a command of this host that must succeed.
func must(t *testing.T, args ...string) string {
	t.Helper()
	out, err := exec.Command(args[0], args[1:]...).CombinedOutput()
	if err != nil {
		t.Fatalf("%q: %v\n%s", args, err, out)
	}
	return string(out)
}
