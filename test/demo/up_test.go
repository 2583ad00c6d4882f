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

// TestRepeatedUp checks that a second make up prints where the cluster is, and starts no other.
func TestRepeatedUp(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a whole cluster: not with -short")
	}
	programs := t.TempDir()
	if err := cluster.Build(t.Context(), programs); err != nil {
		t.Fatal(err)
	}
	t.Setenv("GREYLAG_BIN", programs)
	dir, err := os.MkdirTemp("/tmp", "up") // short, for the sockets in it
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	var first, second, down bytes.Buffer
	if err := startCluster(t.Context(), dir, &first); err != nil {
		t.Fatal(err)
	}
	defer stopCluster(dir, &down)
	if err := startCluster(t.Context(), dir, &second); err != nil {
		t.Errorf("a second time: %v", err)
	}
	for _, out := range []string{first.String(), second.String()} {
		if !strings.Contains(out, "export PATH="+programs) || !strings.Contains(out, "GREYLAG_CONFIG="+filepath.Join(dir, "client.toml")) {
			t.Errorf("no variables for a shell: %q", out)
		}
	}
	if !strings.Contains(second.String(), "already running") {
		t.Errorf("the second time: %q", second.String())
	}
	if err := stopCluster(dir, &down); err != nil || !strings.Contains(down.String(), "stopped the cluster") {
		t.Errorf("down: %q, %v", down.String(), err)
	}
	down.Reset()
	if err := stopCluster(dir, &down); err != nil || !strings.Contains(down.String(), "make up starts one") {
		t.Errorf("down without up: %q, %v", down.String(), err)
	}
}

// TestUpAfterACrash checks that the directory of a dead cluster is not overwritten.
func TestUpAfterACrash(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("GREYLAG_BIN", dir) // no programs: nothing answers
	if err := os.WriteFile(filepath.Join(dir, "client.toml"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if err := startCluster(t.Context(), dir, &out); err == nil || !strings.Contains(err.Error(), "make down removes it") {
		t.Errorf("make up in the directory of a dead cluster: %v", err)
	}
}
