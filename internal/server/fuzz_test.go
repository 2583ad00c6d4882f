package server_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/binary"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	greylagv1 "github.com/greylag/greylag/api/gen/greylag/v1"
	"github.com/greylag/greylag/internal/pki"
	"github.com/greylag/greylag/pkg/cluster"
)

// procedures are the procedures that get the bytes of a fuzzer, with whether they stream. Those
// that change the membership or transfer leadership are left out, since they take effect.
var procedures = []struct {
	rpc    string
	stream bool
}{
	{"JobService/SubmitJobs", false}, {"JobService/ListJobs", false}, {"JobService/StreamJobs", true}, {"JobService/GetJob", false},
	{"JobService/WatchJobs", true}, {"JobService/CancelJobs", false}, {"JobService/UpdateJobs", false}, {"JobService/GetScript", false},
	{"JobService/StreamLogs", true}, {"NodeService/RegisterNode", false}, {"NodeService/WatchTasks", true}, {"NodeService/ReportTasks", false},
	{"NodeService/GetContent", false}, {"NodeService/PushLog", false}, {"ClusterService/GetInfo", false}, {"ClusterService/ListNodes", false},
	{"ClusterService/UpdateNodes", false}, {"ClusterService/CreateToken", false}, {"ClusterService/Join", false},
	{"ClusterService/RenewCertificate", false}, {"ClusterService/GetPolicy", false}, {"ClusterService/SetPolicy", false},
	{"PeerService/ListFinishedJobs", false}, {"PeerService/GetBlobs", false},
	{"JobService/SetCron", false}, {"JobService/UpdateCron", false}, {"JobService/ListCron", false}, {"JobService/RunCron", false},
	{"JobService/SetSecret", false}, {"JobService/ListSecrets", false}, {"JobService/DeleteSecrets", false}, {"NodeService/GetSecrets", false},
}

// FuzzHandlers sends any bytes to any procedure, as callers who may call it, in each encoding. No
// answer may be an internal error, and the controller must keep running.
func FuzzHandlers(f *testing.F) {
	seed := func(i uint8, p proto.Message) {
		data, err := proto.Marshal(p)
		must(f, err)
		f.Add(i, uint8(0), data)
	}
	array := job("a")
	array.Array, array.Depends = "1-9:2%3", []*greylagv1.Dependency{{Kind: greylagv1.DependencyKind_DEPENDENCY_KIND_AFTEROK, Job: "1"}}
	seed(0, &greylagv1.SubmitJobsRequest{RequestId: "x", Jobs: []*greylagv1.JobSpec{job("b"), array}})
	seed(1, &greylagv1.ListJobsRequest{Filter: &greylagv1.Filter{Jobs: []string{"1_2"}, AllStates: true, Nodes: []string{"n[1-2]"}}, PageToken: "f1.2"})
	seed(5, &greylagv1.CancelJobsRequest{Filter: &greylagv1.Filter{Names: []string{"a"}}, Signal: 9})
	seed(6, &greylagv1.UpdateJobsRequest{Filter: &greylagv1.Filter{Jobs: []string{"1"}}, Action: greylagv1.JobAction_JOB_ACTION_REQUEUE})
	seed(9, &greylagv1.RegisterNodeRequest{BootId: "b", Cpus: 2, Gpus: []*greylagv1.GPU{{Type: "h100"}}})
	seed(11, &greylagv1.ReportTasksRequest{Epoch: 9, Seen: 9, Tasks: []*greylagv1.ReportedTask{{Job: 1, Attempt: 1, Phase: greylagv1.TaskPhase_TASK_PHASE_ENDED, Cause: greylagv1.TaskCause_TASK_CAUSE_EXITED}}})
	seed(21, &greylagv1.SetPolicyRequest{Toml: "private = true\n[[partition]]\nname = \"a\"\n"})
	f.Add(uint8(0), uint8(1), []byte(`{"jobs":[{"script":"IyEK","timeLimit":"3600s"}]}`))
	w := newWorld(f, options{})
	people := map[string]*http.Request{}
	for _, role := range []pki.Role{pki.RoleNode, pki.RoleController} {
		r := httptest.NewRequest(http.MethodPost, "/", nil)
		leaf := w.identity(role, "fuzz").Certificate().Leaf
		r.TLS = &tls.ConnectionState{HandshakeComplete: true, PeerCertificates: []*x509.Certificate{leaf}, VerifiedChains: [][]*x509.Certificate{{leaf}}}
		people[string(role)] = r
	}
	f.Fuzz(func(t *testing.T, which, form uint8, data []byte) {
		p := procedures[int(which)%len(procedures)]
		kind := [...]string{"application/proto", "application/json", "application/grpc"}[form%3]
		if p.stream && form%3 < 2 {
			kind = [...]string{"application/connect+proto", "application/connect+json"}[form%3]
		}
		if p.stream || form%3 == 2 {
			data = append(binary.BigEndian.AppendUint32([]byte{0}, uint32(len(data))), data...)
		}
		for _, name := range []string{"root", "ann", "node", "controller"} {
			w.fuzz(t, people[name], name, p.rpc, kind, data)
		}
	})
}

func (w *world) fuzz(t *testing.T, as *http.Request, name, rpc, kind string, data []byte) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	time.AfterFunc(50*time.Millisecond, cancel) // streams do not end without a cancel
	r := httptest.NewRequestWithContext(ctx, http.MethodPost, "/greylag.v1."+rpc, bytes.NewReader(data))
	r.ProtoMajor, r.Proto = 2, "HTTP/2.0"
	r.Header.Set("Content-Type", kind)
	r.Header.Set("Te", "trailers")
	if as != nil {
		r.TLS = as.TLS
	} else {
		user := map[string]cluster.Identity{"root": root, "ann": ann}[name]
		token, err := w.signer.Token(user, time.Now())
		must(t, err)
		r.Header.Set("Authorization", "Bearer "+token)
	}
	answer := httptest.NewRecorder()
	w.all[0].server.ServeHTTP(answer, r)
	body := answer.Body.Bytes()
	if answer.Code >= 500 && answer.Code != http.StatusServiceUnavailable && answer.Code != http.StatusGatewayTimeout ||
		answer.Header().Get("Grpc-Status") == "13" || bytes.Contains(body, []byte(`"code":"internal"`)) && bytes.Contains(body, []byte("internal error")) {
		t.Errorf("%s as %s, %s: %d %.500s %v", rpc, name, kind, answer.Code, body, answer.Header())
	}
}
