// Package packages tests the packages on machines that systemd booted in containers: installation,
// upgrade, downgrade, removal, and what an administrator types in the first hour. A rolling upgrade
// runs the programs of the packages as processes of this host.
package packages

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"sync"
	"testing"

	"github.com/greylag/greylag/test/cluster"
)

// top is the root of the repository.
const top = "../.."

func TestMain(m *testing.M) {
	cluster.ReapIfAsked()
	flag.Parse()
	code := m.Run()
	for _, dir := range leftovers {
		os.RemoveAll(dir)
	}
	os.Exit(code)
}

// leftovers are the directories that all tests share.
var leftovers []string

// needs skips a test by name where it cannot run.
func needs(t *testing.T, programs ...string) {
	t.Helper()
	if testing.Short() {
		t.Skip("builds packages: not with -short")
	}
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
	for _, program := range programs {
		if _, err := exec.LookPath(program); err != nil {
			t.Skip("needs ", program, ": ./test/setup packages installs it")
		}
	}
}

// repositories returns the directory that machines see as /srv/greylag: the repositories of this version
// and of the previous one. They are made once, unless GREYLAG_REPOSITORIES names them.
func repositories(t *testing.T) string {
	t.Helper()
	dir, err := madeRepositories()
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

var madeRepositories = sync.OnceValues(func() (string, error) {
	if dir := os.Getenv("GREYLAG_REPOSITORIES"); dir != "" {
		return dir, nil
	}
	dir, err := os.MkdirTemp("", "greylag-repositories-")
	if err != nil {
		return "", err
	}
	leftovers = append(leftovers, dir)
	if out, err := exec.Command("./repositories", dir).CombinedOutput(); err != nil {
		return "", fmt.Errorf("make the packages: %w\n%s", err, out)
	}
	return dir, nil
})
