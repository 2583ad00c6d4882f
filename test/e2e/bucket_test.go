package e2e

import (
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/johannesboyne/gofakes3"
	"github.com/johannesboyne/gofakes3/backend/s3mem"

	"github.com/greylag/greylag/test/cluster"
)

// TestCheckpointsInS3 has a job write a checkpoint into a bucket and commit it. The next attempt resumes from it, after
// the node has verified it.
func TestCheckpointsInS3(t *testing.T) {
	t.Parallel()
	needsRoot(t, "a tmpfs")
	backend := s3mem.New()
	if err := backend.CreateBucket("lab"); err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(gofakes3.New(backend).Server())
	t.Cleanup(server.Close)
	at, err := url.Parse(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	s := newSite(t, cluster.Options{Nodes: 1, GPUs: 1, CPUs: 4, Memory: "2GiB", Policy: quickKill(), Tmpfs: true})
	s.secret(alice, "aws-credentials", "[default]\naws_access_key_id = id\naws_secret_access_key = key\n")
	id := s.gsubmit(alice, "--requeue", "--checkpoint=s3://lab/runs/%j", "--secret=aws-credentials", "--export=ALL,AWS_REGION=us-east-1,AWS_ENDPOINT_URL="+server.URL,
		s.script(`echo "attempt $GREYLAG_ATTEMPT from ${GREYLAG_RESUME_FROM:-nothing} step ${GREYLAG_RESUME_STEP:-0}" >>log
[ $GREYLAG_ATTEMPT = 1 ] || exit 9
place=$(gctl checkpoint begin)
exec 3<>/dev/tcp/`+at.Hostname()+"/"+at.Port()+`
printf 'PUT /lab/%s/shard HTTP/1.1\r\nHost: store\r\nContent-Length: 7\r\nConnection: close\r\n\r\nweights' "${place#s3://lab/}" >&3
head -n 1 <&3 >answer
gctl checkpoint commit "$place" --step 5 && echo "$place" >committed
gctl requeue $GREYLAG_JOB_ID
sleep 600`))
	job := s.ends(id, "FAILED")
	place := strings.TrimSpace(s.output("committed"))
	want := "attempt 1 from nothing step 0\nattempt 2 from " + place + " step 5\n"
	if got := s.output("log"); place == "" || got != want || job.ExitCode != 9 {
		t.Errorf("the job ended with %d and wrote %q, want %q", job.ExitCode, got, want)
	}
	if list := s.ok(alice, "gctl", "checkpoint", "list", job.Ref); !strings.Contains(list, "VERIFIED") || !strings.Contains(list, "s3://lab/runs/"+job.Ref+"/a1-") {
		t.Errorf("checkpoints:\n%s", list)
	}
	s.audit(limited(t, hang))
}
