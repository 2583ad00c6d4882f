package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/greylag/greylag/internal/auth"
	"github.com/greylag/greylag/internal/pki"
)

func TestVouchesUntilStopped(t *testing.T) {
	dir := t.TempDir()
	ca, err := pki.NewCA("prod", time.Now())
	if err != nil {
		t.Fatal(err)
	}
	peer := pki.Peer{ClusterID: "prod", Role: pki.RoleAuth, Name: "login1"}
	if err := ca.Issue(filepath.Join(dir, "pki"), pki.Grant{Peer: peer}, time.Now()); err != nil {
		t.Fatal(err)
	}
	file, socket := filepath.Join(dir, "gauthd.toml"), filepath.Join(dir, "auth.sock")
	text := fmt.Sprintf("socket = %q\npki_dir = %q\n", socket, filepath.Join(dir, "pki"))
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	status := make(chan int, 1)
	var stderr bytes.Buffer
	go func() { status <- run(ctx, []string{"--config", file}, &stderr) }()
	deadline := time.Now().Add(time.Minute)
	token, err := auth.FetchToken(t.Context(), socket)
	for ; err != nil && time.Now().Before(deadline); token, err = auth.FetchToken(t.Context(), socket) {
		time.Sleep(5 * time.Millisecond)
	}
	if err != nil {
		t.Fatal(err)
	}
	if id, err := auth.NewVerifier(ca.Trust(), nil).Verify(token, time.Now()); err != nil || id.UID != uint32(os.Getuid()) {
		t.Errorf("%+v, %v", id, err)
	}
	stop()
	if got := <-status; got != 0 || !strings.Contains(stderr.String(), "login1") {
		t.Errorf("exit status %d: %s", got, stderr.String())
	}
}

func TestSaysWhatIsWrong(t *testing.T) {
	dir := t.TempDir()
	good, bad := filepath.Join(dir, "good.toml"), filepath.Join(dir, "bad.toml")
	for path, text := range map[string]string{good: fmt.Sprintf("pki_dir = %q\n", dir), bad: "sokcet = 1\n[log]\nlevel = 1\n"} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		args   []string
		status int
		say    string
	}{
		{[]string{"--help"}, 0, "usage: gauthd"},
		{[]string{"--zzz"}, 2, "zzz"},
		{[]string{"extra"}, 2, "usage"},
		{[]string{"--config", bad}, 2, "bad.toml:1: sokcet: unknown key; did you mean socket?"},
		{[]string{"--config", bad}, 2, "bad.toml:3: log.level"},
		{[]string{"--config", "/absent.toml"}, 2, "no such file"},
		{[]string{"--config", good}, 1, "gctl join TOKEN@HOST"},
	} {
		var stderr bytes.Buffer
		if got := run(t.Context(), c.args, &stderr); got != c.status || !strings.Contains(stderr.String(), c.say) {
			t.Errorf("%q: %d, %s", c.args, got, stderr.String())
		}
	}
}
