package gctld

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	greylagv1 "github.com/greylag/greylag/api/gen/greylag/v1"
	"github.com/greylag/greylag/internal/client"
	commands "github.com/greylag/greylag/internal/command"
	"github.com/greylag/greylag/internal/config"
	"github.com/greylag/greylag/internal/pki"
	"github.com/greylag/greylag/internal/raftlog"
	"github.com/greylag/greylag/internal/server/certs"
	"github.com/greylag/greylag/internal/version"
)

// layout prepares a folder as gctl init does and returns the configuration file.
func layout(t *testing.T) (config, addr string) {
	t.Helper()
	dir := t.TempDir()
	addr = freeAddress(t)
	ca, err := pki.NewCA("test", time.Now())
	must(t, err)
	must(t, ca.Save(filepath.Join(dir, "pki")))
	must(t, ca.Issue(filepath.Join(dir, "pki"), pki.Grant{Peer: pki.Peer{ClusterID: "test", Role: pki.RoleController, Name: "c1"}, Hosts: []string{"127.0.0.1"}}, time.Now()))
	config = filepath.Join(dir, "gctld.toml")
	must(t, os.WriteFile(config, fmt.Appendf(nil, "name = \"c1\"\nlisten = %q\nadvertise = %q\ndata_dir = %q\npki_dir = %q\n[raft]\nreserve = \"0\"\n",
		addr, addr, filepath.Join(dir, "lib", "data"), filepath.Join(dir, "pki")), 0o644))
	return config, addr
}

// freeAddress returns a port below the kernel's ephemeral range, so that no client takes it while
// its controller is down.
func freeAddress(t *testing.T) string {
	t.Helper()
	for {
		addr := fmt.Sprintf("127.0.0.1:%d", 20000+rand.IntN(12000))
		if l, err := net.Listen("tcp", addr); err == nil {
			must(t, l.Close())
			return addr
		}
	}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// command runs gctld's Main to its end.
func command(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, errs locked
	code = Main(t.Context(), args, &out, &errs)
	return code, out.String(), errs.String()
}

// locked is a buffer that goroutines which outlive Main, such as the library's, may
// still write to.
type locked struct {
	mu     sync.Mutex
	buffer bytes.Buffer
}

func (l *locked) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buffer.Write(p)
}

func (l *locked) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buffer.String()
}

// running is a gctld in this process.
type running struct {
	t    *testing.T
	http *http.Client
	addr string
	stop func() (code int, stderr string)
}

func start(t *testing.T, config, addr string) *running {
	t.Helper()
	return startUntil(t, config, addr, "/readyz")
}

// startUntil starts a controller and waits until a page answers 200.
func startUntil(t *testing.T, config, addr, page string) *running {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	var stderr locked
	code := make(chan int, 1)
	go func() { code <- Main(ctx, []string{"--config", config, "--log-level", "warn"}, io.Discard, &stderr) }()
	ended := false
	r := &running{t: t, addr: addr}
	r.stop = func() (int, string) {
		ended = true
		cancel()
		select {
		case c := <-code:
			return c, stderr.String()
		case <-time.After(2 * time.Minute):
			t.Fatal("gctld does not end")
			return 0, ""
		}
	}
	t.Cleanup(func() {
		if !ended {
			r.stop()
		}
	})
	trust, err := pki.LoadTrust(filepath.Join(filepath.Dir(config), "pki", pki.TrustFile))
	must(t, err)
	r.http = &http.Client{Transport: &http.Transport{TLSClientConfig: pki.ClientTLS(trust, nil), ForceAttemptHTTP2: true}, Timeout: time.Minute}
	for deadline := time.Now().Add(2 * time.Minute); ; time.Sleep(10 * time.Millisecond) {
		if body, status := r.get(page); status == http.StatusOK && body == "ok\n" {
			return r
		}
		if time.Now().After(deadline) {
			t.Fatal("gctld does not come up")
		}
	}
}

func (r *running) get(path string) (body string, status int) {
	answer, err := r.http.Get("https://" + r.addr + path)
	if err != nil {
		return err.Error(), 0
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	must(r.t, err)
	return string(text), answer.StatusCode
}

func TestAControllersLife(t *testing.T) {
	config, addr := layout(t)
	if code, out, err := command(t, "init", "--config", config); code != 0 || out != "" {
		t.Fatal(code, out, err)
	}
	if code, _, err := command(t, "init", "--config", config); code != exitFailed || !strings.Contains(err, "holds a cluster's state already") {
		t.Fatal(code, err)
	}
	lib := filepath.Join(filepath.Dir(config), "lib")
	for folder, want := range map[string]os.FileMode{lib: 0o755, filepath.Join(lib, "data"): 0o700} {
		if info, err := os.Stat(folder); err != nil || info.Mode().Perm() != want {
			t.Errorf("%s: %v %v, want %v", folder, info, err, want)
		}
	}
	r := start(t, config, addr)
	metrics, status := r.get("/metrics")
	for deadline := time.Now().Add(time.Minute); !strings.Contains(metrics, "greylag_jobs{") && time.Now().Before(deadline); time.Sleep(100 * time.Millisecond) {
		metrics, status = r.get("/metrics") // its loops begin after it is elected
	}
	for _, line := range []string{"greylag_raft_leader 1", "greylag_jobs{partition=\"main\",state=\"PENDING\"} 0", "greylag_raft_members 1", "# TYPE greylag_scheduler_passes_total counter"} {
		if status != http.StatusOK || !strings.Contains(metrics, line+"\n") {
			t.Errorf("metrics (%d) without %q:\n%s", status, line, metrics)
		}
	}
	dir := filepath.Join(filepath.Dir(config), "pki")
	id, trust, err := pki.OpenIdentity(dir)
	must(t, err)
	c := client.New(client.Config{Controllers: []string{addr}, TLS: pki.ClientTLS(trust, id)})
	defer c.Close()
	answer, err := c.Cluster().GetStatus(t.Context(), &greylagv1.GetStatusRequest{})
	if err != nil || answer.ClusterId != "test" || answer.Leader != answer.Id || len(answer.Members) != 1 {
		t.Fatal(answer, err)
	}
	if code, _, errs := command(t, "--config", config); code != exitFailed || !strings.Contains(errs, "address already in use") {
		t.Fatal(code, errs)
	}
	if code, errs := r.stop(); code != exitOK {
		t.Fatal(code, errs)
	}
}

func TestBackupAndRecoveryOfAStoppedController(t *testing.T) {
	config, addr := layout(t)
	if code, _, err := command(t, "snapshot", "--config", config); code != exitFailed || !strings.Contains(err, "no controller's state") {
		t.Fatal(code, err)
	}
	code, _, errs := command(t, "init", "--config", config)
	if code != exitOK {
		t.Fatal(errs)
	}
	start(t, config, addr).stop()
	file := filepath.Join(t.TempDir(), "backup")
	if code, _, err := command(t, "snapshot", "--config", config, "-o", file); code != exitOK {
		t.Fatal(err)
	}
	if data, err := os.ReadFile(file); err != nil || !bytes.HasPrefix(data, []byte("GLBK")) {
		t.Fatalf("%.10q %v", data, err)
	}
	for range 2 { // it changes nothing
		code, out, err := command(t, "recover", "--config", config)
		if code != exitFailed || !strings.Contains(err, "run it again with --yes") || !strings.Contains(out, "of term 3: the snapshot up to entry ") || !strings.Contains(out, "as the only member\n") {
			t.Fatal(code, out, err)
		}
	}
	if code, out, err := command(t, "recover", "--config", config, "--yes"); code != exitOK || !strings.Contains(out, "kept everything up to entry") {
		t.Fatal(code, out, err)
	}
	if code, errs := start(t, config, addr).stop(); code != exitOK {
		t.Fatal(code, errs)
	}
}

// TestRestore checks that a backup becomes a cluster under its own CA, only in an empty data_dir,
// and that leftovers of an interrupted restore are replaced.
func TestRestore(t *testing.T) {
	path, addr, file := backedUp(t)
	cfg, err := config.LoadController(path)
	must(t, err)
	refused := func(input, why string) {
		t.Helper()
		if code, _, errs := command(t, "restore", "--config", path, "-i", input); code != exitFailed || !strings.Contains(errs, why) {
			t.Fatalf("%s: %d %s, want %q", input, code, errs, why)
		}
	}
	refused(file, "holds archive; move it away first")
	empty(t, cfg.DataDir)
	must(t, os.WriteFile(filepath.Join(cfg.DataDir, "note"), nil, 0o600))
	refused(file, "holds note; move it away first")
	empty(t, cfg.DataDir)
	whole, err := os.ReadFile(file)
	must(t, err)
	damaged := func(name string, data []byte) string {
		must(t, os.WriteFile(file+name, data, 0o600))
		return file + name
	}
	refused(damaged(".cut", whole[:len(whole)-7]), "backup is damaged")
	refused(damaged(".long", append(slices.Clone(whole), 'x')), "data after its end")
	for i := 1; i < len(whole); i += len(whole)/20 + 1 {
		bad := slices.Clone(whole)
		bad[i] ^= 16
		refused(damaged(".flipped", bad), "backup")
	}
	newer := slices.Clone(whole)
	newer[4]++
	refused(damaged(".newer", newer), "update it first")
	earlier := slices.Clone(whole)
	earlier[4] = 1 // development versions stored the form alone
	refused(damaged(".earlier", earlier), "restore "+file+".earlier: ")
	refused(file+".earlier", "written by an earlier development version")
	refused(path, "no backup header")
	refused("/nonexistent", "no such file")
	refused(damaged(".foreign", ofAnotherCluster(whole)), "the backup is of another cluster")
	refused(damaged(".state", ofAnotherState(whole)), "cannot read the state in this backup")
	if left, err := os.ReadDir(cfg.DataDir); err != nil || len(left) > 0 {
		t.Fatalf("refused restores left %v, %v", left, err)
	}
	must(t, os.MkdirAll(filepath.Join(cfg.DataDir, restoreFolder, raftFolder), 0o700)) // of a killed one
	if code, _, errs := command(t, "restore", "--config", path, "-i", file); code != exitOK {
		t.Fatal(code, errs)
	}
	if _, err := os.Stat(filepath.Join(cfg.DataDir, restoreFolder)); err == nil {
		t.Error("the folder of the restore is still there")
	}
	if code, errs := start(t, path, addr).stop(); code != exitOK {
		t.Fatal(code, errs)
	}
}

// TestRestoreWithTheDefaultFolders checks that pki_dir may be in data_dir, its default, at a
// restore.
func TestRestoreWithTheDefaultFolders(t *testing.T) {
	path, _, file := backedUp(t)
	cfg, err := config.LoadController(path)
	must(t, err)
	standard := config.DefaultController()
	inside, err := filepath.Rel(standard.DataDir, standard.PKIDir)
	must(t, err)
	data := t.TempDir()
	restore := []string{"restore", "--config", path, "-i", file, "--data-dir", data, "--pki-dir", filepath.Join(data, inside)}
	if code, _, errs := command(t, restore...); code != exitFailed || !strings.Contains(errs, "copy the cluster's pki_dir to "+filepath.Join(data, inside)+" first") {
		t.Fatal(code, errs)
	}
	must(t, os.CopyFS(filepath.Join(data, inside), os.DirFS(cfg.PKIDir)))
	must(t, os.WriteFile(filepath.Join(data, "note"), nil, 0o600))
	if code, _, errs := command(t, restore...); code != exitFailed || !strings.Contains(errs, "holds note; move it away first") {
		t.Fatal(code, errs)
	}
	must(t, os.Remove(filepath.Join(data, "note")))
	if code, _, errs := command(t, restore...); code != exitOK {
		t.Fatal(code, errs)
	}
	manual, err := os.ReadFile("../../docs/recovery.md")
	must(t, err)
	if archived := "tar -C " + standard.DataDir + " -cf - " + inside + " "; !strings.Contains(string(manual), archived) {
		t.Errorf("docs/recovery.md does not back up %s with %q", standard.PKIDir, archived)
	}
}

// backedUp returns a stopped cluster of one controller, and its backup.
func backedUp(t *testing.T) (path, addr, file string) {
	t.Helper()
	path, addr = layout(t)
	if code, _, errs := command(t, "init", "--config", path); code != exitOK {
		t.Fatal(errs)
	}
	start(t, path, addr).stop()
	file = filepath.Join(t.TempDir(), "backup")
	if code, _, errs := command(t, "snapshot", "--config", path, "-o", file); code != exitOK {
		t.Fatal(errs)
	}
	return path, addr, file
}

// ofAnotherCluster is a whole backup whose description names another cluster.
func ofAnotherCluster(backup []byte) []byte {
	end := 13 + int(binary.LittleEndian.Uint32(backup[5:]))
	text := bytes.Replace(backup[13:end], []byte(`"test"`), []byte(`"else"`), 1)
	out := binary.LittleEndian.AppendUint32(slices.Clone(backup[:9]), crc32.Checksum(text, crc32.MakeTable(crc32.Castagnoli)))
	return append(append(out, text...), backup[end:]...)
}

// ofAnotherState is a whole backup whose state is malformed in its last byte.
func ofAnotherState(backup []byte) []byte {
	out := slices.Clone(backup)
	at, last, number := 13+int(binary.LittleEndian.Uint32(backup[5:])), 0, uint32(0)
	for ; ; number++ { // frames: length, CRC-32C of number and payload, payload; the last is empty
		size := int(binary.LittleEndian.Uint32(backup[at:]))
		if size == 0 {
			break
		}
		last, at = at, at+8+size
	}
	out[at-1] ^= 1
	sum := crc32.Checksum(binary.LittleEndian.AppendUint32(nil, number-1), crc32.MakeTable(crc32.Castagnoli))
	binary.LittleEndian.PutUint32(out[last+4:], crc32.Update(sum, crc32.MakeTable(crc32.Castagnoli), out[last+8:at]))
	return out
}

// empty removes all that a folder holds.
func empty(t *testing.T, dir string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	must(t, err)
	for _, e := range entries {
		must(t, os.RemoveAll(filepath.Join(dir, e.Name())))
	}
}

// TestVersionsApart refuses data that a version two minor versions away used.
func TestVersionsApart(t *testing.T) {
	defer func(was string) { version.Version = was }(version.Version)
	version.Version = "0.3.0"
	cfg := config.Controller{DataDir: t.TempDir()}
	must(t, checkLastVersion(cfg))
	for last, ok := range map[string]bool{"0.1.4": false, "0.5.0": false, "1.3.0": false, "0.2.9": true, "0.4.0": true, "": true} {
		must(t, os.WriteFile(filepath.Join(cfg.DataDir, versionFile), []byte(last+"\n"), 0o644))
		if err := checkLastVersion(cfg); (err == nil) != ok {
			t.Errorf("after %q: %v", last, err)
		}
	}
	must(t, recordVersion(cfg))
	must(t, checkLastVersion(cfg))
}

// TestRemovedControllerDoesNotStart checks that a removed controller exits with a status of its own
// at every start.
func TestRemovedControllerDoesNotStart(t *testing.T) {
	path, _ := layout(t)
	if code, _, errs := command(t, "init", "--config", path); code != exitOK {
		t.Fatal(errs)
	}
	dir := filepath.Join(filepath.Dir(path), "lib", "data", "raft")
	id, err := os.ReadFile(filepath.Join(dir, "identity.json"))
	must(t, err)
	must(t, os.WriteFile(filepath.Join(dir, "removed.json"), id, 0o600)) // both name the member
	hint := fmt.Sprintf("gctl cluster token --controller; then empty %s and %s here and run: gctl join TOKEN@CONTROLLER --config %s\n",
		filepath.Dir(dir), filepath.Join(filepath.Dir(path), "pki"), path)
	for range 2 {
		code, _, errs := command(t, "--config", path)
		if code != exitRemoved || !strings.Contains(errs, "removed from the cluster") || !strings.Contains(errs, "gctld: hint: ") || !strings.HasSuffix(errs, hint) {
			t.Fatalf("status %d, %s; want the hint %s", code, errs, hint)
		}
	}
}

// TestUnitKnowsTheExitStatuses checks that the service manager restarts a controller where that helps,
// and not one that was removed.
func TestUnitKnowsTheExitStatuses(t *testing.T) {
	for file, want := range map[string]string{
		"packaging/common/systemd/gctld.service": fmt.Sprintf("\nRestart=on-failure\nRestartForceExitStatus=%d %d\nRestartPreventExitStatus=%d %d\n", raftlog.ExitStalled, raftlog.ExitDamaged, exitUsage, exitRemoved),
		"docs/admin.md":                          fmt.Sprintf("\n| it was removed | gctld exits with %d,", exitRemoved),
	} {
		text, err := os.ReadFile("../../" + file)
		must(t, err)
		if !strings.Contains(string(text), want) {
			t.Errorf("%s lacks %q", file, want)
		}
	}
}

// TestControllerBeingRemovedKeepsItsConnections checks that the certificate of a controller that is
// being removed counts until the configuration no longer has it.
func TestControllerBeingRemovedKeepsItsConnections(t *testing.T) {
	path, _ := layout(t)
	cfg, err := config.LoadController(path)
	must(t, err)
	log := slog.New(slog.DiscardHandler)
	must(t, Init(cfg, log))
	d, err := Open(cfg, log)
	must(t, err)
	ctx, stop := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() { served <- d.Serve(ctx) }()
	defer func() { stop(); must(t, <-served) }()
	must(t, ready(t.Context(), d.store.log))
	admin := commands.Actor{Role: commands.RoleAdmin}
	for _, c := range []commands.Command{
		&commands.RetireMember{Actor: admin, ID: d.store.log.Status().ID, Name: "c1"},
		&commands.RetireMember{Actor: admin, ID: "ctl-gone", Name: "c2"},
	} {
		_, _, err := d.store.log.Propose(t.Context(), commands.Encode(c))
		must(t, err)
	}
	for name, want := range map[string]bool{"c1": false, "c2": true} {
		peer := pki.Peer{ClusterID: "test", Role: pki.RoleController, Name: name}
		issued := time.Now().Add(-time.Minute)
		if certs.CheckRevoked(d.store.replica.View(), peer, issued) == nil {
			t.Errorf("%s: its certificate is not revoked", name)
		}
		if err := d.checkRevoked(peer, issued); (err != nil) != want {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestUsage(t *testing.T) {
	for _, args := range [][]string{{"--nonsense"}, {"dance"}, {"run", "now"}, {"--log-level", "loud"}, {"--config", "/nonexistent"}} {
		if code, out, err := command(t, args...); code != exitUsage || out != "" || err == "" {
			t.Errorf("%q: %d %q %q", args, code, out, err)
		}
	}
	if code, _, err := command(t, "--help"); code != exitOK || !strings.Contains(err, "Exit status") || !strings.Contains(err, "77 this controller was removed") {
		t.Error(code, err)
	}
}

// TestDevFolder checks what --dev prepares; the end-to-end tests run the programs together.
func TestDevFolder(t *testing.T) {
	d := &dev{dir: t.TempDir()}
	must(t, d.prepare("error"))
	first := d.addr
	id, trust, err := pki.OpenIdentity(d.in("node/pki"))
	if err != nil || id.Peer().Role != pki.RoleNode || !strings.HasPrefix(trust.ClusterID(), "dev-") {
		t.Fatal(err)
	}
	must(t, Init(d.cfg, slog.New(slog.DiscardHandler)))
	again := &dev{dir: d.dir}
	must(t, again.prepare("error"))
	if again.addr != first {
		t.Fatalf("moved from %s to %s", first, again.addr)
	}
	if err := Init(again.cfg, slog.New(slog.DiscardHandler)); err == nil {
		t.Fatal("another cluster was initialized")
	}
}
