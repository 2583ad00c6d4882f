package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/greylag/greylag/test/cluster"
)

func TestMain(m *testing.M) {
	cluster.ReapIfAsked()
	os.Exit(m.Run())
}

// TestUpTwice: who types make up again learns where the cluster is, and no second
// one is started.
func TestUpTwice(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a whole cluster: not with -short")
	}
	programs := t.TempDir()
	if err := cluster.Build(t.Context(), programs); err != nil {
		t.Fatal(err)
	}
	t.Setenv("GREYLAG_BIN", programs)
	dir, err := os.MkdirTemp("/tmp", "up") // short, as sockets lie in it
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	var first, second, down bytes.Buffer
	if err := leave(t.Context(), dir, &first); err != nil {
		t.Fatal(err)
	}
	defer end(dir, &down)
	if err := leave(t.Context(), dir, &second); err != nil {
		t.Errorf("a second time: %v", err)
	}
	for _, out := range []string{first.String(), second.String()} {
		if !strings.Contains(out, "export PATH="+programs) || !strings.Contains(out, "GREYLAG_CONFIG="+filepath.Join(dir, "client.toml")) {
			t.Errorf("it does not say how to use the cluster: %q", out)
		}
	}
	if !strings.Contains(second.String(), "runs already") {
		t.Errorf("the second time it says %q", second.String())
	}
	if err := end(dir, &down); err != nil || !strings.Contains(down.String(), "has ended") {
		t.Errorf("down: %q, %v", down.String(), err)
	}
	down.Reset()
	if err := end(dir, &down); err != nil || !strings.Contains(down.String(), "make up starts one") {
		t.Errorf("down without up: %q, %v", down.String(), err)
	}
}

// TestUpAfterACrash: what is left of a dead cluster is not overwritten.
func TestUpAfterACrash(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("GREYLAG_BIN", dir) // no programs: nothing answers
	if err := os.WriteFile(filepath.Join(dir, "client.toml"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if err := leave(t.Context(), dir, &out); err == nil || !strings.Contains(err.Error(), "make down removes it") {
		t.Errorf("up where one was: %v", err)
	}
}
