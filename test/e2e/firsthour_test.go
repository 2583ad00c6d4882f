package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/greylag/greylag/internal/client"
	"github.com/greylag/greylag/internal/config"
	"github.com/greylag/greylag/internal/pki"
	containerd "github.com/greylag/greylag/internal/runtime/containerd/private"
	"github.com/greylag/greylag/test/cluster"
)

// machine is a host without any set-up: a folder that replaces /etc, /var/lib and /run through a
// drop-in of each daemon, since several hosts share this one.
type machine struct {
	t       *testing.T
	dir     string
	daemons map[string]*exec.Cmd
}

func newMachine(t *testing.T, root, name string) *machine {
	m := &machine{t, filepath.Join(root, name), map[string]*exec.Cmd{}}
	t.Cleanup(func() {
		for program := range m.daemons {
			m.stop(program)
		}
		if t.Failed() {
			logs, _ := filepath.Glob(m.path("*.log")) // the pattern is well formed
			for _, log := range logs {
				text, _ := os.ReadFile(log)
				t.Logf("%s:\n%s", log, text[max(0, len(text)-3000):])
			}
		}
	})
	return m
}

func (m *machine) path(name string) string { return filepath.Join(m.dir, name) }

func (m *machine) must(err error) {
	m.t.Helper()
	if err != nil {
		m.t.Fatal(m.dir, err)
	}
}

// site is the drop-in of a daemon; {} is the host's folder.
func (m *machine) site(program, text string) {
	m.must(config.WriteFile(m.path(program+".d/site.toml"), strings.ReplaceAll(text, "{}", m.dir)))
}

// run runs a command on the host and returns its two outputs.
func (m *machine) run(args ...string) (out, notes string) {
	m.t.Helper()
	ctx, cancel := context.WithTimeout(m.t.Context(), hang)
	defer cancel()
	var stdout, stderr bytes.Buffer
	c := exec.CommandContext(ctx, filepath.Join(os.Getenv("GREYLAG_BIN"), args[0]), args[1:]...)
	c.Env = append(os.Environ(), "GREYLAG_CONFIG="+m.path("client.toml"))
	c.Dir, c.Stdout, c.Stderr = m.dir, &stdout, &stderr
	if err := c.Run(); err != nil {
		m.t.Fatalf("%s: %q: %v\n%s%s", m.dir, args, err, &stdout, &stderr)
	}
	return strings.TrimSpace(stdout.String()), stderr.String()
}

// setUp runs gctl init or join with the host's files.
func (m *machine) setUp(args ...string) {
	m.t.Helper()
	_, notes := m.run(append(append([]string{"gctl"}, args...), "--client", m.path("client.toml"), "--ca", m.path("ca.pem"))...)
	if strings.Contains(notes, "systemctl") || strings.Contains(notes, "add to it") {
		m.t.Errorf("%q advises what does not apply here:\n%s", args, notes)
	}
}

func (m *machine) start(program string) {
	m.t.Helper()
	log, err := os.OpenFile(m.path(program+".log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	m.must(err)
	defer log.Close()
	c := exec.Command(filepath.Join(os.Getenv("GREYLAG_BIN"), program), "--config", m.path(program+".toml"))
	c.Stdout, c.Stderr = log, log
	m.must(c.Start())
	m.daemons[program] = c
}

func (m *machine) stop(program string) {
	c := m.daemons[program]
	delete(m.daemons, program)
	if err := c.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		m.t.Error(err)
	}
	_ = c.Wait() // a removed controller ends with a status of its own
}

// vouches waits for gauthd's socket.
func (m *machine) vouches() {
	m.t.Helper()
	m.until("gauthd vouches", func() (bool, error) {
		_, err := os.Stat(m.path("auth.sock"))
		return err == nil, err
	})
}

// until waits for a condition.
func (m *machine) until(what string, done func() (bool, error)) {
	m.t.Helper()
	m.must(cluster.Until(limited(m.t, hang), what, done))
}

// members returns the ids of the voting controllers by address.
func (m *machine) members() map[string]string {
	out, _ := m.run("gctl", "cluster", "status", "--json")
	var status struct {
		Members []struct {
			ID, Address string
			Voter       bool
		}
	}
	m.must(json.Unmarshal([]byte(out), &status))
	all := map[string]string{}
	for _, member := range status.Members {
		if member.Voter {
			all[member.Address] = member.ID
		}
	}
	return all
}

// names reports whether the host's commands know exactly these controllers.
func (m *machine) names(controllers ...string) func() (bool, error) {
	slices.Sort(controllers)
	return func() (bool, error) {
		cfg, err := config.LoadClient(m.path("client.toml"))
		return slices.Equal(cfg.Controllers, controllers), errors.Join(err, fmt.Errorf("it names %q", cfg.Controllers))
	}
}

// job runs a job to its end and reads its output through the controllers.
func (m *machine) job(word string) {
	m.t.Helper()
	id, _ := m.run("gsubmit", "--parsable", "--output", "/tmp/%x-%j", "--wait", "--wrap", "echo "+word)
	m.t.Cleanup(func() {
		left, _ := filepath.Glob("/tmp/*-" + id) // the pattern is well formed
		for _, file := range left {
			os.Remove(file)
		}
	})
	if out, _ := m.run("gctl", "logs", id); out != word {
		m.t.Errorf("job %s wrote %q, want %q", id, out, word)
	}
}

// freeAddress returns an address without a listener.
func freeAddress(t *testing.T) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// aController prepares a host for gctld and returns it with its address.
func aController(t *testing.T, root, name string) (*machine, string) {
	m, address := newMachine(t, root, name), freeAddress(t)
	m.site("gctld", fmt.Sprintf("name = %q\nlisten = %q\nadvertise = %q\ndata_dir = \"{}/data\"\npki_dir = \"{}/data/pki\"\n", name, address, address))
	m.site("gauthd", "socket = \"{}/auth.sock\"\npki_dir = \"{}/auth\"\n")
	return m, address
}

// aNode prepares a compute node with the runtime for this user.
func aNode(t *testing.T, root string) *machine {
	m := newMachine(t, root, "n1")
	text := fmt.Sprintf("name = \"e%dfirst\"\ndata_dir = \"{}/data\"\nstate_dir = \"{}/state\"\npki_dir = \"{}/data/pki\"\ncdi_dir = \"{}/cdi\"\ncpus = 2\n", os.Getpid())
	gpus := "[[simulated_gpus]]\ncount = 1\ntype = \"h100\"\nmemory = \"80GiB\"\n"
	if os.Geteuid() != 0 {
		m.site("gnoded", text+"runtime = \"process\"\n"+gpus)
		return m
	}
	d, err := containerd.Start(filepath.Join(root, "d"), containerd.Options{Tmpfs: true})
	if err != nil {
		t.Skip("needs containerd: ", err)
	}
	t.Cleanup(func() {
		if err := d.Stop(); err != nil && !errors.Is(err, syscall.EBUSY) {
			t.Error(err)
		}
	})
	m.site("gnoded", text+gpus+fmt.Sprintf("[containerd]\nsocket = %q\n", d.Address()))
	return m
}

// TestFirstHourAndTheFirstControllerGone follows "Set up a cluster" of docs/admin.md on hosts
// without files: a controller, a node, a login node and a second controller. Then the first
// controller is removed permanently; every host learned its address when it joined.
func TestFirstHourAndTheFirstControllerGone(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("starts a real cluster: not with -short")
	}
	root, err := containerd.Dir("fh-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(root) })
	first, at1 := aController(t, root, "ctl1")
	first.setUp("init", "--cluster", "mycluster", "--config", first.path("gctld.toml"), "--auth", first.path("gauthd.toml"))
	first.start("gctld")
	first.start("gauthd")
	first.vouches()

	node, login := aNode(t, root), newMachine(t, root, "login")
	login.site("gauthd", "socket = \"{}/auth.sock\"\npki_dir = \"{}/auth\"\n")
	second, at2 := aController(t, root, "ctl2")
	for _, h := range []struct {
		*machine
		role, program, name string
	}{{node, "node", "gnoded", fmt.Sprintf("e%dfirst", os.Getpid())}, {login, "auth", "gauthd", "login"}, {second, "controller", "gctld", "ctl2"}} {
		token, _ := first.run("gctl", "cluster", "token", "--"+h.role)
		h.setUp("join", token, "--config", h.path(h.program+".toml"), "--name", h.name) // the machines share one host name
		h.start(h.program)
	}
	login.vouches()
	login.job("hello")
	login.until("the second controller votes", func() (bool, error) { return len(login.members()) == 2, nil })
	for _, m := range []*machine{first, node, login, second} {
		m.until("the host knows both controllers", m.names(at1, at2))
	}

	login.run("gctl", "cluster", "remove", login.members()[at1])
	first.stop("gctld")
	first.stop("gauthd")
	for _, m := range []*machine{node, login, second} {
		m.until("the host knows the present controller alone", m.names(at2))
	}
	login.job("ctl1-is-gone")
	node.stop("gnoded")
	login.stop("gauthd")
	node.start("gnoded")
	login.start("gauthd")
	login.vouches()
	login.job("after-restarts")
	renews(node, "data/pki", at1)
	renews(login, "auth", at1)
}

// renews replaces a daemon's certificate as the daemon does; its file names a controller that is
// gone.
func renews(m *machine, dir, seed string) {
	id, trust, err := pki.OpenIdentity(m.path(dir))
	m.must(err)
	known, err := client.OpenKnown(m.path(dir), []string{seed})
	m.must(err)
	before := id.Certificate().Leaf.SerialNumber
	ctx, cancel := context.WithTimeout(m.t.Context(), time.Minute)
	defer cancel()
	m.must(pki.RenewNow(ctx, m.path(dir), id, client.Renewal(known, trust, id)))
	if id.Certificate().Leaf.SerialNumber.Cmp(before) == 0 {
		m.t.Errorf("%s: the certificate is the old one", m.dir)
	}
}
