package packages

import (
	"crypto/sha256"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestReproducible builds all packages a second time, in another directory, and compares their bytes.
func TestReproducible(t *testing.T) {
	t.Parallel()
	needs(t, "dh", "rpmbuild", "reprepro", "createrepo_c", "gpg")
	if out := must(t, "git", "-C", top, "status", "--porcelain"); out != "" {
		t.Skip("the checkout has changes that a clone lacks: ", out)
	}
	repositories(t)
	again := filepath.Join(t.TempDir(), "elsewhere")
	must(t, "git", "clone", "--quiet", "--shared", top, again)
	must(t, "make", "-j2", "-C", again, "deb", "rpm")
	want, got := hashes(t, top), hashes(t, again)
	for name, hash := range want {
		if got[name] != hash {
			t.Errorf("%s differs when it is built again", name)
		}
	}
	if len(got) != len(want) {
		t.Errorf("%d packages, and %d when they are built again", len(want), len(got))
	}
}

// hashes returns the hash of each package of this version that a checkout has made.
func hashes(t *testing.T, checkout string) map[string][32]byte {
	t.Helper()
	version := strings.TrimSpace(must(t, filepath.Join(checkout, "packaging/version")))
	files, err := filepath.Glob(filepath.Join(checkout, "bin/packages/*"+version+"*"))
	if err != nil || len(files) == 0 {
		t.Fatal("no packages of version ", version, err)
	}
	all := map[string][32]byte{}
	for _, file := range files {
		content, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		all[filepath.Base(file)] = sha256.Sum256(content)
	}
	return all
}

// TestLint runs lintian and rpmlint, whose overrides are explained in packaging.
func TestLint(t *testing.T) {
	t.Parallel()
	needs(t, "dh", "rpmbuild", "reprepro", "createrepo_c", "gpg", "lintian", "rpmlint")
	repositories(t)
	for _, c := range []struct {
		pattern string
		args    []string
	}{
		{"*.deb", []string{"lintian", "--allow-root", "--fail-on", "error,warning", "--tag-display-limit", "0"}},
		{"*.rpm", []string{"rpmlint", "--config", filepath.Join(top, "packaging/rpm/rpmlint.toml")}},
	} {
		files, err := filepath.Glob(filepath.Join(top, "bin/packages", c.pattern))
		if err != nil || len(files) == 0 {
			t.Fatal("no packages ", c.pattern, err)
		}
		if out, err := exec.Command(c.args[0], append(c.args[1:], files...)...).CombinedOutput(); err != nil {
			t.Errorf("%s: %v\n%s", c.args[0], err, out)
		}
	}
}
