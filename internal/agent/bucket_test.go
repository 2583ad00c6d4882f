package agent

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/johannesboyne/gofakes3"
	"github.com/johannesboyne/gofakes3/backend/s3mem"

	greylagv1 "github.com/greylag/greylag/api/gen/greylag/v1"
	"github.com/greylag/greylag/internal/checkpoint"
)

// TestResumeFromS3 verifies a checkpoint in a bucket before the task starts, with the credentials of a secret of the
// job, which the task finds as well. A node without the credentials cannot read it: that is no damage.
func TestResumeFromS3(t *testing.T) {
	backend := s3mem.New()
	if err := backend.CreateBucket("lab"); err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(gofakes3.New(backend).Server())
	t.Cleanup(server.Close)
	put := func(content string) {
		t.Helper()
		modified := map[string]string{"Last-Modified": time.Now().UTC().Format(http.TimeFormat)}
		if _, err := backend.PutObject("lab", "run/a1-1/shard", modified, strings.NewReader(content), int64(len(content)), nil); err != nil {
			t.Fatal(err)
		}
	}
	put("weights")
	for name, value := range map[string]string{"AWS_ENDPOINT_URL": server.URL, "AWS_REGION": "us-east-1", "AWS_ACCESS_KEY_ID": "id", "AWS_SECRET_ACCESS_KEY": "key"} {
		t.Setenv(name, value)
	}
	from := &greylagv1.ResumePoint{Number: 3, Dir: "s3://lab/run/a1-1", Of: 1}
	s, err := checkpoint.Open(from.Dir)
	if err != nil {
		t.Fatal(err)
	}
	m, err := checkpoint.Create(t.Context(), s, checkpoint.Header{Job: 5, Attempt: 1}, true)
	if err != nil {
		t.Fatal(err)
	}
	digest, err := m.Write(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	from.Digest = digest[:]
	_, setting := inMemory(t)
	n := newNode(t, "process", setting)
	run := func(job int, secrets bool) *greylagv1.ReportedTask {
		n.want(at(job, 2), "#!/bin/sh\necho \"$GREYLAG_RESUME_FROM $GREYLAG_CHECKPOINT_DIR\"\ncat \"$AWS_SHARED_CREDENTIALS_FILE\"\n", func(w *greylagv1.WantedTask) {
			w.WorkDir, w.Output, w.Resume, w.CheckpointDir, w.Secrets = n.home, "out", from, "s3://lab/run", secrets
			w.Environment = n.put([]byte("AWS_ENDPOINT_URL=" + server.URL + "\x00AWS_REGION=us-east-1"))
		})
		return n.settled(at(job, 2))
	}
	if end := run(5, false); end.GetCause() != greylagv1.TaskCause_TASK_CAUSE_NODE || !strings.Contains(end.GetMessage(), checkpoint.ErrNoCredentials.Error()) {
		t.Errorf("without credentials: %v", end)
	}
	const file = "[default]\naws_access_key_id = id\naws_secret_access_key = key\n"
	n.secrets = []*greylagv1.SecretValue{{Name: credentialsSecret, Value: []byte(file)}}
	if end := run(6, true); end.GetExitCode() != 0 || n.read("out") != "s3://lab/run/a1-1 s3://lab/run\n"+file {
		t.Errorf("with credentials: %v; it printed %q", end, n.read("out"))
	}
	put("weightz")
	if end := run(7, true); end.GetCause() != greylagv1.TaskCause_TASK_CAUSE_CHECKPOINT || end.GetMessage() != "checkpoint 3: shard: 1 of 1 pieces differ" {
		t.Errorf("a changed object: %v", end)
	}
}
