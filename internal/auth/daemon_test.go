package auth

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/greylag/greylag/internal/hint"
)

// startDaemon serves on a socket of its own until the test ends or stop is called.
func startDaemon(t testing.TB, s *Signer, path string) (stop func()) {
	t.Helper()
	listener, err := Listen(path)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- NewDaemon(s, NewNames(), echo{}, slog.New(slog.DiscardHandler)).Serve(ctx, listener) }()
	stopped := false
	stop = func() {
		if stopped {
			return
		}
		stopped = true
		cancel()
		select {
		case err := <-done:
			if err != nil {
				t.Errorf("serve: %v", err)
			}
		case <-time.After(time.Minute):
			t.Error("daemon does not stop")
		}
	}
	t.Cleanup(stop)
	return stop
}

func TestFetchTellsWhoWeAre(t *testing.T) {
	ca := testCA(t)
	path := filepath.Join(t.TempDir(), "run", "auth.sock")
	startDaemon(t, testSigner(t, ca, "login1"), path)
	token, err := FetchToken(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	id, err := NewVerifier(ca.Trust(), nil).Verify(token, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	me, err := user.Current()
	if err != nil {
		t.Fatal(err)
	}
	if id.UID != uint32(os.Getuid()) || id.GID != uint32(os.Getgid()) || id.User != me.Username || id.Host != "login1" {
		t.Errorf("%+v, we are %+v", id, me)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o666 {
		t.Errorf("socket %v, %v", info.Mode(), err)
	}
}

// TestOtherUsers runs this test's own program under other uids, which only root can.
func TestOtherUsers(t *testing.T) {
	if socket := os.Getenv("GREYLAG_TEST_FETCH"); socket != "" {
		token, err := FetchToken(t.Context(), socket)
		if err != nil {
			token = err.Error() + " hint: " + hint.Of(err)
		}
		os.Stdout.WriteString("answer=" + token + "\n")
		return
	}
	if os.Getuid() != 0 {
		t.Skip("needs root: runs programs under other uids")
	}
	dir, err := os.MkdirTemp("/tmp", "gauth") // t.TempDir is closed to other users
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	program := filepath.Join(dir, "self")
	self, err := os.ReadFile("/proc/self/exe")
	if err := errors.Join(err, os.Chmod(dir, 0o755), os.WriteFile(program, self, 0o755), os.Chmod(program, 0o755)); err != nil {
		t.Fatal(err)
	}
	ca := testCA(t)
	startDaemon(t, testSigner(t, ca, "login1"), filepath.Join(dir, "auth.sock"))
	ask := func(uid, gid uint32) string {
		cmd := exec.Command(program, "-test.run=^TestOtherUsers$")
		cmd.Dir, cmd.Env = "/", []string{"GREYLAG_TEST_FETCH=" + filepath.Join(dir, "auth.sock")}
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: gid}}
		out, err := cmd.CombinedOutput()
		_, answer, found := strings.Cut(string(out), "answer=")
		if err != nil || !found {
			t.Fatalf("uid %d: %v: %s", uid, err, out)
		}
		return strings.SplitN(answer, "\n", 2)[0]
	}
	id, err := NewVerifier(ca.Trust(), nil).Verify(ask(1, 2), time.Now())
	if err != nil || id.UID != 1 || id.GID != 2 || id.User != "daemon" {
		t.Errorf("uid 1: %+v, %v", id, err)
	}
	if got := ask(54321, 54321); !strings.Contains(got, "no name on this host: uid 54321 hint: your account") {
		t.Errorf("uid without a name: %s", got)
	}
	if got := ask(overflowUID(), 1); !strings.Contains(got, "another user namespace hint: run") {
		t.Errorf("foreign uid: %s", got)
	}
}

func TestFetchSaysWhatIsWrong(t *testing.T) {
	dir := t.TempDir()
	absent, dead, garbled := filepath.Join(dir, "absent"), filepath.Join(dir, "dead"), filepath.Join(dir, "garbled")
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: dead})
	if err != nil {
		t.Fatal(err)
	}
	l.SetUnlinkOnClose(false)
	l.Close()
	g, err := net.Listen("unix", garbled)
	if err != nil {
		t.Fatal(err)
	}
	defer g.Close()
	go func() {
		for {
			conn, err := g.Accept()
			if err != nil {
				return
			}
			_, _ = conn.Write([]byte("HTTP/1.1 200 OK\r\n\n"))
			conn.Close()
		}
	}()
	for path, want := range map[string]string{absent: "login nodes", dead: "has ended", garbled: "log"} {
		_, err := FetchToken(t.Context(), path)
		if !errors.Is(err, ErrNoDaemon) || !strings.Contains(hint.Of(err), want) || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: %v", path, err)
		}
	}
}

// TestAwaitDaemon checks that a daemon that refuses tokens has answered, and one that hangs has not.
func TestAwaitDaemon(t *testing.T) {
	path := filepath.Join(t.TempDir(), "auth.sock")
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	soon, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	AwaitDaemon(soon, path)
	if soon.Err() == nil {
		t.Error("a daemon that hangs has answered")
	}
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = conn.Write([]byte("error " + codeNotJoined + " the certificate has ended\n"))
			conn.Close()
		}
	}()
	late, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if AwaitDaemon(late, path); late.Err() != nil {
		t.Error(late.Err())
	}
}

func TestDaemonRestarts(t *testing.T) {
	ca := testCA(t)
	s := testSigner(t, ca, "login1")
	path := filepath.Join(t.TempDir(), "auth.sock")
	stop := startDaemon(t, s, path)
	if _, err := Listen(path); !errors.Is(err, ErrRunning) {
		t.Errorf("second daemon: %v", err)
	}
	stop()
	// The socket of a killed daemon.
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path})
	if err != nil {
		t.Fatal(err)
	}
	l.SetUnlinkOnClose(false)
	l.Close()
	startDaemon(t, s, path)
	if _, err := FetchToken(t.Context(), path); err != nil {
		t.Error(err)
	}
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, []byte("precious"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Listen(file); err == nil {
		t.Error("a file was taken for a socket")
	}
	if text, _ := os.ReadFile(file); string(text) != "precious" {
		t.Error("a file was removed")
	}
}

func TestDaemonOutlivesGarbageAndSilence(t *testing.T) {
	ca := testCA(t)
	path := filepath.Join(t.TempDir(), "auth.sock")
	startDaemon(t, testSigner(t, ca, "login1"), path)
	noise := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		conn, err := net.Dial("unix", path)
		if err != nil {
			t.Fatal(err)
		}
		junk := make([]byte, noise.IntN(100))
		for i := range junk {
			junk[i] = byte(noise.Uint32())
		}
		_, _ = conn.Write(append(junk, '\n')) // the daemon may have hung up
		if answer, _ := io.ReadAll(conn); bytes.HasPrefix(answer, []byte("ok ")) {
			t.Errorf("%q got a token", junk)
		}
		conn.Close()
	}
	var silent []net.Conn
	begun := time.Now()
	for range maxUserConns {
		conn, err := net.Dial("unix", path)
		if err != nil {
			t.Fatal(err)
		}
		silent = append(silent, conn)
	}
	soon, cancel := context.WithTimeout(t.Context(), 10*readTime)
	defer cancel()
	if _, err := FetchToken(soon, path); !errors.Is(err, errBusy) && time.Since(begun) < readTime {
		t.Errorf("one user may hold any number of connections: %v", err)
	}
	for _, conn := range silent { // the daemon ends them by its own deadline
		_ = conn.SetReadDeadline(time.Now().Add(time.Minute))
		answer, err := io.ReadAll(conn)
		if err != nil || !bytes.HasPrefix(answer, []byte("error "+codeBadRequest)) {
			t.Fatalf("silent connection: %q, %v", answer, err)
		}
		conn.Close()
	}
	if _, err := FetchToken(t.Context(), path); err != nil {
		t.Errorf("after the silent ones: %v", err)
	}
}

func TestManyAtOnceAreAllServed(t *testing.T) {
	ca := testCA(t)
	path := filepath.Join(t.TempDir(), "auth.sock")
	startDaemon(t, testSigner(t, ca, "login1"), path)
	const callers = 10 * maxUserConns
	failed := make(chan error, callers)
	for range callers {
		go func() {
			_, err := FetchToken(t.Context(), path)
			failed <- err
		}()
	}
	for range callers {
		if err := <-failed; err != nil {
			t.Error(err)
		}
	}
}

func TestSourceFetchesAgainAtHalfLife(t *testing.T) {
	ca := testCA(t)
	path := filepath.Join(t.TempDir(), "auth.sock")
	startDaemon(t, testSigner(t, ca, "login1"), path)
	s := NewSource(path)
	first, err := s.Token(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if again, _ := s.Token(t.Context()); again != first {
		t.Error("fetched again at once")
	}
	s.fresh = time.Now().Add(-time.Second)
	if next, err := s.Token(t.Context()); err != nil || next == first {
		t.Errorf("not fetched again: %v", err)
	}
}

// FuzzParseAnswer checks that the client returns a token or an error, whatever a daemon sends.
func FuzzParseAnswer(f *testing.F) {
	for _, s := range []string{"ok abc", "error busy x", "error", "error unknown_user uid 7", ""} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, line string) {
		if token, err := parseAnswer(line); (token == "") == (err == nil) {
			t.Errorf("%q: token %q, error %v", line, token, err)
		}
	})
}

func BenchmarkFetch(b *testing.B) {
	ca := testCA(b)
	path := filepath.Join(b.TempDir(), "auth.sock")
	startDaemon(b, testSigner(b, ca, "login1"), path)
	for b.Loop() {
		if _, err := FetchToken(b.Context(), path); err != nil {
			b.Fatal(err)
		}
	}
}
