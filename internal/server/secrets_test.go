package server_test

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"

	greylagv1 "github.com/greylag/greylag/api/gen/greylag/v1"
	"github.com/greylag/greylag/internal/auth"
	"github.com/greylag/greylag/internal/client"
	"github.com/greylag/greylag/internal/pki"
	"github.com/greylag/greylag/pkg/cluster"
)

// setSecret stores a secret.
func (w *world) setSecret(user cluster.Identity, name, value string) error {
	_, err := w.as(user).Jobs().SetSecret(w.t.Context(), &greylagv1.SetSecretRequest{RequestId: client.NewRequestID(), Name: name, Value: []byte(value)})
	return err
}

// secretsOf returns the secrets of a task as NAME=VALUE.
func (n *node) secretsOf(task *greylagv1.WantedTask) (string, error) {
	answer, err := n.session.Secrets(n.w.t.Context(), &greylagv1.GetSecretsRequest{Job: task.GetJob(), Attempt: task.GetAttempt(), Granted: task.GetGranted()})
	var all []string
	for _, s := range answer.GetSecrets() {
		all = append(all, s.GetName()+"="+string(s.GetValue()))
	}
	return strings.Join(all, " "), err
}

// withSecrets is a job with secrets.
func withSecrets(names ...string) *greylagv1.JobSpec {
	spec := job("work")
	spec.Secrets = names
	return spec
}

const plainSecret = "hf_Zm9yIHRoZSB0ZXN0IG9ubHk"

// TestSecretsReachOnlyTheTasksOfTheirJob also checks that the log, the archive and snapshots contain no value.
func TestSecretsReachOnlyTheTasksOfTheirJob(t *testing.T) {
	w := newWorld(t, options{})
	must(t, w.setSecret(ann, "token", "first"))
	must(t, w.setSecret(ann, "token", plainSecret))
	must(t, w.setSecret(ann, "other", "x"))
	n1, n2 := newNode(w, "n1"), newNode(w, "n2")
	spec := withSecrets("token")
	spec.Request = &greylagv1.Request{NodeList: []string{"n1"}}
	w.submit(w.as(ann), spec)
	task := n1.busy().GetTasks()[0]
	if !task.GetSecrets() {
		t.Errorf("the node is not sent that the task has secrets: %v", task)
	}
	if got, err := n1.secretsOf(task); err != nil || got != "token="+plainSecret {
		t.Errorf("the node of the task: %q, %v", got, err)
	}
	if got, err := n2.secretsOf(task); connect.CodeOf(err) != connect.CodeNotFound {
		t.Errorf("another node: %q, %v", got, err)
	}
	task.Attempt++
	if got, err := n1.secretsOf(task); connect.CodeOf(err) != connect.CodeNotFound {
		t.Errorf("another attempt: %q, %v", got, err)
	}
	task.Attempt--
	var snapshot bytes.Buffer
	stream, err := w.as(root).Cluster().StreamSnapshot(t.Context(), &greylagv1.StreamSnapshotRequest{})
	must(t, err)
	for stream.Receive() {
		snapshot.Write(stream.Msg().GetData())
	}
	must(t, stream.Err())
	w.lacks("the snapshot", snapshot.Bytes())
	must(t, filepath.WalkDir(w.dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.Type().IsRegular() {
			return err
		}
		text, err := os.ReadFile(path)
		w.lacks(path, text)
		return err
	}))
	_, err = w.as(ann).Jobs().CancelJobs(t.Context(), &greylagv1.CancelJobsRequest{RequestId: client.NewRequestID(), Filter: &greylagv1.Filter{Jobs: []string{fmt.Sprint(task.GetJob())}}})
	must(t, err)
	if got, err := n1.secretsOf(task); connect.CodeOf(err) != connect.CodeNotFound {
		t.Errorf("a cancelled job: %q, %v", got, err)
	}
}

// lacks checks that stored data has neither the value of the secret nor its digest.
func (w *world) lacks(where string, data []byte) {
	w.t.Helper()
	sum := sha256.Sum256([]byte(plainSecret))
	if bytes.Contains(data, []byte(plainSecret)) || bytes.Contains(data, sum[:16]) {
		w.t.Errorf("%s contains the secret", where)
	}
}

func TestSecretsOfOtherUsers(t *testing.T) {
	w := newWorld(t, options{})
	must(t, w.setSecret(ann, "token", plainSecret))
	submit := func(user cluster.Identity) error {
		_, err := w.as(user).Jobs().SubmitJobs(t.Context(), &greylagv1.SubmitJobsRequest{RequestId: client.NewRequestID(), Jobs: []*greylagv1.JobSpec{withSecrets("token")}})
		return err
	}
	for _, user := range []cluster.Identity{bob, olga, root} {
		says(t, user.User, submit(user), user.User+` has no secret "token"`)
	}
	entry := hourly("cron")
	entry.Job.Secrets = []string{"token"}
	_, err := w.as(bob).Jobs().SetCron(t.Context(), &greylagv1.SetCronRequest{Entry: entry})
	says(t, "a recurring job of bob", err, `bob has no secret "token"`)
	list := func(user cluster.Identity, request *greylagv1.ListSecretsRequest) (string, error) {
		answer, err := w.as(user).Jobs().ListSecrets(t.Context(), request)
		return fmt.Sprint(answer), err
	}
	for _, request := range []*greylagv1.ListSecretsRequest{{User: "ann"}, {AllUsers: true}} {
		if text, err := list(olga, request); connect.CodeOf(err) != connect.CodePermissionDenied {
			t.Errorf("olga lists %v: %s, %v", request, text, err)
		}
		text, err := list(root, request)
		if must(t, err); !strings.Contains(text, `name:"token"`) || strings.Contains(text, plainSecret) {
			t.Errorf("root lists %v: %s", request, text)
		}
	}
	remove := func(user cluster.Identity) error {
		_, err := w.as(user).Jobs().DeleteSecrets(t.Context(), &greylagv1.DeleteSecretsRequest{RequestId: client.NewRequestID(), User: "ann", Names: []string{"token"}})
		return err
	}
	for _, user := range []cluster.Identity{bob, olga} {
		if err := remove(user); connect.CodeOf(err) != connect.CodePermissionDenied {
			t.Errorf("%s deletes a secret of ann: %v", user.User, err)
		}
	}
	must(t, remove(root))
	says(t, "after it was deleted", submit(ann), `ann has no secret "token"`)
}

func TestSecretsOfOddSizesAreRefused(t *testing.T) {
	w := newWorld(t, options{})
	says(t, "an empty value", w.setSecret(ann, "token", ""), "the value of the secret is empty")
	says(t, "a large value", w.setSecret(ann, "token", strings.Repeat("x", cluster.MaxSecret+1)), "65537 bytes")
	must(t, w.setSecret(ann, "token", strings.Repeat("x", cluster.MaxSecret)))
	says(t, "a path", w.setSecret(ann, "../token", "x"), "cannot name a secret")
	for i := range 63 {
		must(t, w.setSecret(ann, fmt.Sprint(i), "x"))
	}
	says(t, "the 65th", w.setSecret(ann, "more", "x"), "you have 64 secrets, the maximum")
	must(t, w.setSecret(ann, "token", "y"))
}

// TestAJobWithoutItsSecretsFails checks secrets that were deleted, and those that were encrypted under a CA
// that the cluster does not use, as after a restore with a pki_dir from before a rotation.
func TestAJobWithoutItsSecretsFails(t *testing.T) {
	w := newWorld(t, options{})
	n := newNode(w, "n1")
	must(t, w.setSecret(ann, "token", plainSecret))
	must(t, w.setSecret(ann, "other", "x"))
	w.submit(w.as(ann), withSecrets("token", "other"))
	task := n.busy().GetTasks()[0]
	_, err := w.as(ann).Jobs().DeleteSecrets(t.Context(), &greylagv1.DeleteSecretsRequest{Names: []string{"token"}})
	must(t, err)
	if _, err := n.secretsOf(task); connect.CodeOf(err) != connect.CodeDataLoss || !strings.Contains(err.Error(), `its secret "token" was deleted: run gctl secret set token and submit the job again`) {
		t.Errorf("a deleted secret: %v", err)
	}
	must(t, w.setSecret(ann, "token", "y"))
	if got, err := n.secretsOf(task); err != nil || got != "token=y other=x" {
		t.Errorf("stored again: %q, %v", got, err)
	}
	next, err := pki.NewCA("test", time.Now())
	must(t, err)
	keys, err := next.KeyPEM()
	must(t, err)
	must(t, w.ca.AddKeys(keys))
	w.accept(next.Trust().DERs()[0], w.ca.Trust().DERs()[0])
	w.identity(pki.RoleController, "c1")
	w.identity(pki.RoleNode, "n1")
	w.signer, err = auth.NewSigner(w.identity(pki.RoleAuth, "login1"))
	must(t, err)
	w.accept(next.Trust().DERs()[0])
	var answer *greylagv1.ListSecretsResponse
	w.until("the controller shows its new certificate", func() bool {
		answer, err = w.as(ann).Jobs().ListSecrets(t.Context(), &greylagv1.ListSecretsRequest{})
		return err == nil
	})
	for _, s := range answer.GetSecrets() {
		if want := "cannot be decrypted: the key of its CA is missing since a restore; its user must run gctl secret set " + s.GetName(); s.GetProblem() != want {
			t.Errorf("listed: %v", s)
		}
	}
	w.until("the node shows its new certificate", func() bool {
		_, err = n.secretsOf(task)
		return connect.CodeOf(err) != connect.CodeUnauthenticated
	})
	if connect.CodeOf(err) != connect.CodeDataLoss || !strings.Contains(err.Error(), `its secret "token" cannot be decrypted`) {
		t.Errorf("an unreadable secret: %v", err)
	}
	must(t, w.setSecret(ann, "token", "z"))
	must(t, w.setSecret(ann, "other", "z"))
	if got, err := n.secretsOf(task); err != nil || got != "token=z other=z" {
		t.Errorf("stored under the new CA: %q, %v", got, err)
	}
}

// TestStagingCredentials checks which credentials the node gets for copies of the files of a job.
func TestStagingCredentials(t *testing.T) {
	w := newWorld(t, options{})
	must(t, w.setSecret(root, "data", plainSecret))
	must(t, w.setSecret(ann, cluster.CredentialsSecret, "own"))
	now, err := w.as(root).Cluster().GetPolicy(t.Context(), &greylagv1.GetPolicyRequest{})
	must(t, err)
	text := now.GetToml() + "\n[[staging_credentials]]\naccount = \"physics\"\nuser = \"root\"\nsecret = \"data\"\n[[staging_credentials]]\naccount = \"lost\"\nuser = \"root\"\nsecret = \"none\"\n"
	_, err = w.as(root).Cluster().SetPolicy(t.Context(), &greylagv1.SetPolicyRequest{RequestId: client.NewRequestID(), Toml: text, ExpectVersion: now.GetVersion()})
	must(t, err)
	n := newNode(w, "n1")
	for _, c := range []struct {
		account, want string
		staged        bool
		secrets       []string
	}{
		{"physics", "aws-credentials=" + plainSecret, true, nil}, {"physics", "", false, nil}, {"chemistry", "", true, nil},
		{"physics", "aws-credentials=own", true, []string{cluster.CredentialsSecret}}, {"lost", "does not exist: ask an administrator", true, nil},
	} {
		spec := withSecrets(c.secrets...)
		if spec.Account = c.account; c.staged {
			spec.StageOut = []*greylagv1.Staging{{Path: "x", Url: "s3://lab/x"}}
		}
		id := w.submit(w.as(ann), spec)
		var task *greylagv1.WantedTask
		n.until(id, func(x *greylagv1.WantedTask) bool { task = x; return x != nil })
		answer, err := n.session.Secrets(t.Context(), &greylagv1.GetSecretsRequest{Job: id, Attempt: task.GetAttempt(), Granted: task.GetGranted(), Staging: true})
		got := fmt.Sprint(err)
		if err == nil {
			got = ""
			for _, s := range answer.GetSecrets() {
				got += s.GetName() + "=" + string(s.GetValue())
			}
		}
		if got != c.want && (err == nil || !strings.Contains(got, c.want)) {
			t.Errorf("account %s, staged %v, secrets %v: %q, want %q", c.account, c.staged, c.secrets, got, c.want)
		}
		if got, err := n.secretsOf(task); err != nil || strings.Contains(got, plainSecret) {
			t.Errorf("the job itself gets %q, %v", got, err)
		}
	}
}
