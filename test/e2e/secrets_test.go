package e2e

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/greylag/greylag/test/cluster"
)

const secretValue = "hf_bm93aGVyZSBpbiBjbGVhcg"

// secret stores a secret.
func (s *site) secret(as account, name, value string) {
	s.t.Helper()
	cmd := cluster.As(s.Command(s.t.Context(), "gctl", "secret", "set", name), uint32(as), uint32(as))
	cmd.Stdin = strings.NewReader(value)
	if result := s.finish(cmd); result.Exit != 0 || strings.Contains(result.Stdout+result.Stderr, value) {
		s.t.Fatalf("gctl secret set: %+v", result)
	}
}

// filesWithSecret returns the files of the cluster that contain the value.
func (s *site) filesWithSecret() (found []string) {
	s.t.Helper()
	s.must(filepath.WalkDir(s.Dir, func(path string, entry fs.DirEntry, err error) error {
		if strings.HasSuffix(path, "/state/tasks/host") { // mounts of the host's file system
			return fs.SkipDir
		}
		if errors.Is(err, fs.ErrNotExist) || err == nil && !entry.Type().IsRegular() {
			return nil
		}
		if err != nil {
			return err
		}
		text, err := os.ReadFile(path)
		if bytes.Contains(text, []byte(secretValue)) {
			found = append(found, strings.TrimPrefix(path, s.Dir+"/"))
		}
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return err
	}))
	return found
}

// readSecret is a script body that writes the digest of the secret into a file of the node.
const readSecret = "sha256sum <\"$GREYLAG_SECRETS_DIR/token\" >sum-$GREYLAG_JOB_ID-$GREYLAG_NODEID.new; mv sum-$GREYLAG_JOB_ID-$GREYLAG_NODEID.new sum-$GREYLAG_JOB_ID-$GREYLAG_NODEID\n"

// gotSecret waits until a job has the secret on a node.
func (s *site) gotSecret(job uint64, node int) {
	s.t.Helper()
	name := fmt.Sprintf("sum-%d-%d", job, node)
	s.until("job has the secret", func() (bool, error) { return s.exists(name), nil })
	if got := s.output("%s", name); !strings.HasPrefix(got, fmt.Sprintf("%x", sha256.Sum256([]byte(secretValue)))) {
		s.t.Errorf("the secret of job %d on node %d has the digest %s", job, node, got)
	}
}

// TestSecretsAreNowhereInClear looks for a secret in all files of a cluster and in the output of its commands:
// while a job has it, after its node's daemon was killed and the CA rotated, and after the job. The value
// is in the directories of the job's tasks only.
func TestSecretsAreNowhereInClear(t *testing.T) {
	t.Parallel()
	needsRoot(t, "a tmpfs")
	ctx := limited(t, 8*hang)
	options := three()
	options.Nodes = 2
	s := newSite(t, options)
	s.secret(alice, "token", secretValue)
	if result := s.run(tester, "gsubmit", small("--secret=token", s.script("exit 0"))...); result.Exit == 0 || !strings.Contains(result.Stderr, `root has no secret "token"`) {
		t.Errorf("the secret of another user: %+v", result)
	}
	gate := s.gate("secret")
	job := s.gsubmit(alice, "--nodes=2", "--every-node", "--secret=token", s.script(readSecret+gate.then("exit 0")))
	s.gotSecret(job, 0)
	s.gotSecret(job, 1)
	s.must(s.Node(0).Kill())
	s.must(s.Node(0).Start())
	s.ok(tester, "gctl", "cluster", "snapshot", "--with-history", "-o", filepath.Join(s.Dir, "backup"))
	files := s.filesWithSecret()
	for _, path := range files {
		if ok, _ := filepath.Match("n[12]/state/tasks/sockets/*/secrets/token", path); !ok {
			t.Errorf("%s contains the secret", path)
		}
	}
	if len(files) != 2 {
		t.Errorf("the secret is in %v, want one file on each node", files)
	}
	for _, args := range [][]string{{"show", "job", ref(job)}, {"acct", "-a", "--json"}, {"audit"}, {"secret", "list", "--all", "--json"}, {"cluster", "status", "--json"}} {
		if out := s.ok(tester, "gctl", args...); strings.Contains(out, secretValue) {
			t.Errorf("gctl %v prints the secret", args)
		}
	}
	if out := s.ok(tester, "gqueue", "--json"); strings.Contains(out, secretValue) || !strings.Contains(out, `"token"`) {
		t.Errorf("gqueue --json prints the secret, or not its name: %s", out)
	}
	s.rotateWithSecrets()
	held := s.gsubmit(alice, "--hold", "--secret=token", s.script("exit 0"))
	later := s.gsubmit(alice, "--secret=token", s.script(readSecret))
	s.gotSecret(later, 0)
	s.ends(later, "COMPLETED")
	gate.open()
	s.ends(job, "COMPLETED")
	s.ok(alice, "gctl", "secret", "delete", "token")
	s.ok(alice, "gctl", "release", ref(held))
	if failed := s.ends(held, "FAILED"); !strings.Contains(failed.Detail, `its secret "token" was deleted: run gctl secret set token`) {
		t.Errorf("a job whose secret was deleted: %v", failed.Detail)
	}
	s.idle(ctx)
	if files := s.filesWithSecret(); len(files) > 0 {
		t.Errorf("after the jobs the secret is in %v", files)
	}
	s.audit(ctx)
}

// rotateWithSecrets rotates the CA, from which the key of secrets is derived.
func (s *site) rotateWithSecrets() {
	s.t.Helper()
	s.ok(tester, "gctl", "cert", "rotate")
	s.askAgain()
	s.awaitRotation("renewing")
	s.until("the rotation is finished", func() (bool, error) {
		result := s.run(tester, "gctl", "cert", "rotate", "--finish")
		return result.Exit == 0, fmt.Errorf("%s", result.Stderr)
	})
	s.awaitRotation("done")
	s.must(s.ReloadTrust())
	client, err := s.Client()
	s.must(err)
	s.t.Cleanup(client.Close)
	s.client = client // the previous one accepts only the old CA
	if out := s.ok(alice, "gctl", "secret", "list"); strings.Contains(out, "cannot be decrypted") {
		s.t.Errorf("after the rotation: %s", out)
	}
}
