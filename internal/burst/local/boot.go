//go:build linux

package local

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/greylag/greylag/internal/burst"
	"github.com/greylag/greylag/internal/runtime/containerd/private"
)

// containerdDir is where an instance sees its own folder of containerd: a socket needs a short path.
const containerdDir = "/run/greylag-burst-local"

// boot is what an instance runs: it joins the cluster, and then runs gnoded.
func boot(s *store, args []string, console io.Writer) (err error) {
	if len(args) != 1 {
		return errors.New("missing instance ID")
	}
	x, err := s.read(args[0])
	if err != nil {
		return err
	}
	set, err := s.settings()
	if err != nil {
		return err
	}
	fmt.Fprintln(console, "instance", x.ID, "boots")
	time.Sleep(time.Duration(set.BootSeconds) * time.Second)
	if set.NeverJoin {
		fmt.Fprintln(console, "never_join of", settingsFile)
		idle()
		return nil
	}
	m := machine{store: s, record: x, settings: &set, console: console}
	leave, err := m.openRuntime()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, leave()) }()
	if err := m.join(); err != nil {
		fmt.Fprintln(console, "cannot join:", err) // a machine would run on
		idle()
		return nil
	}
	if err := replaceFile(s.path(x.ID, bootedFile), nil, 0o644); err != nil {
		return err
	}
	for { // as systemd does
		fmt.Fprintln(console, "gnoded ended:", m.run("gnoded", "--config", m.in("gnoded.toml")))
		time.Sleep(restartDelay)
	}
}

// restartDelay is how long an instance waits before it starts gnoded again.
const restartDelay = 2 * time.Second

// idle waits for SIGTERM.
func idle() {
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGTERM)
	<-stop
}

// machine is an instance that boots.
type machine struct {
	*store
	*record
	settings *Settings
	console  io.Writer
	runtime  string // tables of gnoded.toml
}

func (m *machine) in(name string) string { return m.path(m.ID, machineDir, name) }

// openRuntime starts the instance's own containerd, unless it runs tasks as plain processes.
func (m *machine) openRuntime() (leave func() error, err error) {
	if m.settings.Runtime == "process" || m.settings.Runtime == "" && os.Geteuid() != 0 {
		return func() error { return nil }, nil
	}
	if os.Getppid() != 1 {
		return nil, errors.New("containerd needs namespaces of the instance: run as root, or set \"runtime\": \"process\"")
	}
	if err := errors.Join(os.MkdirAll(m.in("c"), 0o700), os.MkdirAll(containerdDir, 0o700)); err != nil {
		return nil, err
	}
	if err := unix.Mount(m.in("c"), containerdDir, "", unix.MS_BIND, ""); err != nil {
		return nil, err
	}
	d, err := private.Start(filepath.Join(containerdDir, "c"), private.Options{Tmpfs: true})
	if err != nil {
		return nil, err
	}
	m.runtime = fmt.Sprintf("[containerd]\nsocket = %q\nnamespace = %q\n", d.Address(), namespaceOf(m.ID))
	if _, err := exec.LookPath("runc"); err != nil {
		m.runtime += "oci_runtime = \"crun\"\n"
	}
	return d.Stop, nil
}

// join writes the files of gnoded and joins the cluster.
func (m *machine) join() error {
	var data burst.UserData
	text, err := os.ReadFile(m.path(m.ID, userDataFile))
	if err == nil {
		err = json.Unmarshal(text, &data)
	}
	if err == nil {
		err = m.configure(&data)
	}
	if err != nil {
		return err
	}
	return m.run("gctl", "join", "--lease", m.path(m.ID, userDataFile), "--instance", m.ID, "--no-start",
		"--identity", "file:"+m.path(m.ID, identityFile),
		"--config", m.in("gnoded.toml"), "--client", m.in("client.toml"), "--ca", m.in("ca.pem"))
}

// configure writes gnoded.toml and the program that ends the instance.
func (m *machine) configure(data *burst.UserData) error {
	off := m.in("power-off")
	if err := os.WriteFile(off, fmt.Appendf(nil, "#!/bin/sh\nkill -TERM %d\n", os.Getppid()), 0o755); err != nil {
		return err
	}
	var b bytes.Buffer
	for _, dir := range []string{"data", "state", "pki", "cdi"} {
		if err := os.MkdirAll(m.in(dir), 0o755); err != nil {
			return err
		}
		fmt.Fprintf(&b, "%s_dir = %q\n", dir, m.in(dir))
	}
	var controllers []string
	for _, c := range data.Controllers {
		controllers = append(controllers, strconv.Quote(c))
	}
	fmt.Fprintf(&b, "controllers = [%s]\nlease_file = %q\npower_off_program = %q\nreclaim_source = %q\nblock_metadata = false\n",
		strings.Join(controllers, ", "), m.in("data/lease.json"), off, "file:"+m.path(m.ID, noticeFile))
	fmt.Fprintf(&b, "cpus = %d\nmemory = \"%dMiB\"\nregion = %q\nsimulated_gpu_offset = %d\n", m.Offer.CPUs, m.Offer.MemoryBytes>>20, m.Offer.Region, m.firstGPU())
	if m.runtime == "" {
		b.WriteString("runtime = \"process\"\n")
	}
	b.WriteString(m.settings.Node + "\n")
	if gpus := int(m.Offer.GPUs) - m.settings.MissingGPUs; gpus > 0 {
		fmt.Fprintf(&b, "[[simulated_gpus]]\ncount = %d\ntype = %q\nmemory = \"%dMiB\"\n", gpus, m.Offer.GPUType, m.Offer.GPUMemoryBytes>>20)
	}
	fmt.Fprintf(&b, "%s[metrics]\ntextfile = %q\n", m.runtime, m.in("greylag.prom"))
	return os.WriteFile(m.in("gnoded.toml"), b.Bytes(), 0o644)
}

// maxGPUs is the number of distinct simulated devices of a machine; nodes beyond that share some.
const maxGPUs = 48

func (m *machine) firstGPU() int {
	first := m.settings.FirstGPU + m.Slot*int(m.Offer.GPUs)
	if first+int(m.Offer.GPUs) > maxGPUs {
		return 0
	}
	return first
}

// run runs a program of Greylag until it ends.
func (m *machine) run(name string, args ...string) error {
	path, err := m.settings.program(name)
	if err != nil {
		return err
	}
	cmd := exec.Command(path, args...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = "/", m.console, m.console
	cmd.Env = append(os.Environ(), "GREYLAG_CONFIG="+m.in("client.toml"))
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}
