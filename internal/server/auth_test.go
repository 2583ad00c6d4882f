package server_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/reflect/protoreflect"

	greylagv1 "github.com/greylag/greylag/api/gen/greylag/v1"
	"github.com/greylag/greylag/internal/client"
	"github.com/greylag/greylag/internal/pki"
	"github.com/greylag/greylag/pkg/cluster"
	"github.com/greylag/greylag/test/scenario"
)

// bodies are requests about job %d; all other procedures get an empty one.
var bodies = map[string]string{
	"JobService/SubmitJobs": `{"jobs":[{"script":"IyEvYmluL3NoCg=="}]}`,
	"JobService/GetJob":     `{"job":"%d"}`, "JobService/GetScript": `{"job":"%d"}`, "JobService/StreamLogs": `{"job":"%d"}`,
	"JobService/CancelJobs": `{"filter":{"jobs":["%d"]}}`, "JobService/UpdateJobs": `{"filter":{"jobs":["%d"]},"action":"JOB_ACTION_HOLD"}`,
	"JobService/AttachStep": `{"job":"%d","contact":["192.0.2.1:1"],"fingerprint":"AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=","key":"AAAAAAAAAAAAAAAAAAAAAA=="}`,
	"JobService/CreateStep": `{"job":"%d","step":{"contact":["192.0.2.1:1"],"fingerprint":"AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=","key":"AAAAAAAAAAAAAAAAAAAAAA=="}}`,
	"JobService/SignalStep": `{"job":"%d"}`, "JobService/SetCheckpoint": `{"job":"%d","number":1,"action":"CHECKPOINT_ACTION_DROP"}`,
	"JobService/CommitCheckpoint": `{"job":"%d","attempt":1,"checkpoint":{"dir":"/c","files":"1","state":"CHECKPOINT_STATE_WRITTEN","digest":"AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA="}}`,
	"JobService/BeginCheckpoint":  `{"job":"%d","attempt":1,"dir":"/c"}`,
	"JobService/SetCron":          `{"entry":{"name":"a","schedule":"@daily","job":{"script":"IyEvYmluL3NoCg=="}},"replace":true}`,
	"JobService/UpdateCron":       `{"user":"ann","names":["a"],"action":"CRON_ACTION_HOLD"}`,
	"JobService/SetSecret":        `{"name":"a","value":"eA=="}`, "JobService/ListSecrets": `{"user":"ann"}`, "JobService/DeleteSecrets": `{"user":"ann","names":["a"]}`,
	"JobService/ListCron": `{"user":"ann"}`, "JobService/RunCron": `{"name":"a"}`,
	"ClusterService/SetPolicy":      `{"dryRun":true}`,
	"AccountService/UpdateAccounts": `{"requestId":"e","edits":[{"action":"ACCOUNT_ACTION_ADD","account":"lab","parent":"root"}]}`,
	"CreditService/ChangeCredits":   `{"requestId":"c","setPrice":{"gpuType":"h100","price":"1000000"}}`,
}

// caller is a column of the table.
type caller struct {
	name string
	http *http.Client
	user *cluster.Identity
}

func (w *world) everyone() []caller {
	with := func(id *pki.Identity) *http.Client {
		tls := pki.ClientTLS(w.ca.Trust(), id)
		return &http.Client{Transport: &http.Transport{TLSClientConfig: tls, ForceAttemptHTTP2: true}}
	}
	plain, controller := with(nil), with(w.identity(pki.RoleController, "c1"))
	return []caller{
		{"anonymous", plain, nil}, {"owner", plain, &ann}, {"other", plain, &bob}, {"operator", plain, &olga}, {"admin", plain, &root},
		{"node", with(w.identity(pki.RoleNode, "n9")), nil}, {"gauthd", with(w.identity(pki.RoleAuth, "l9")), nil},
		{"controller", controller, nil}, {"other+controller", controller, &bob},
		{"outsider", with(w.identity(pki.RoleController, "c9")), nil}, // not a member
	}
}

// TestWhoMayCallWhat calls every procedure as every kind of caller, and compares the answers with a
// table.
func TestWhoMayCallWhat(t *testing.T) {
	w := newWorld(t, options{})
	people := w.everyone()
	var table strings.Builder
	fmt.Fprintf(&table, "%-36s", "")
	for _, p := range people {
		fmt.Fprintf(&table, "%-*s", max(11, len(p.name)+1), p.name)
	}
	table.WriteString("\n")
	for _, file := range []protoreflect.FileDescriptor{
		greylagv1.File_greylag_v1_job_proto, greylagv1.File_greylag_v1_node_proto, greylagv1.File_greylag_v1_cluster_proto,
		greylagv1.File_greylag_v1_account_proto, greylagv1.File_greylag_v1_credit_proto, greylagv1.File_greylag_v1_acct_proto,
		greylagv1.File_greylag_v1_report_proto,
	} {
		for i := range file.Services().Len() {
			service := file.Services().Get(i)
			for k := range service.Methods().Len() {
				method := service.Methods().Get(k)
				rpc := fmt.Sprintf("%s/%s", service.Name(), method.Name())
				fmt.Fprintf(&table, "%-36s", rpc)
				for _, p := range people {
					fmt.Fprintf(&table, "%-*s", max(11, len(p.name)+1), w.try(p, rpc, method.IsStreamingServer()))
				}
				table.WriteString("\n")
			}
		}
	}
	text := strings.ReplaceAll(table.String(), " \n", "\n")
	for strings.Contains(text, " \n") {
		text = strings.ReplaceAll(text, " \n", "\n")
	}
	scenario.Golden(t, "testdata/authorization.txt", text)
}

// try calls a procedure about a new job of ann's and returns the result: "yes" even for an invalid
// request if the caller was allowed.
func (w *world) try(p caller, rpc string, streams bool) string {
	w.t.Helper()
	id := w.submit(w.as(ann), job("subject"))
	body := bodies[rpc]
	if strings.Contains(body, "%d") {
		body = fmt.Sprintf(body, id)
	}
	if body == "" {
		body = "{}"
	}
	ctx, cancel := context.WithTimeout(w.t.Context(), 2*time.Minute)
	defer cancel()
	answer := w.call(ctx, p, rpc, []byte(body), streams)
	switch code := strings.Trim(answer, `"`); code {
	case "unauthenticated":
		return "401"
	case "permission_denied":
		return "no"
	case "not_found", "internal", "unknown":
		return code
	}
	return "yes"
}

// call returns the error code of a call, or of its first outcome, or "".
func (w *world) call(ctx context.Context, p caller, rpc string, body []byte, streams bool) string {
	w.t.Helper()
	kind := "application/json"
	if streams {
		kind = "application/connect+json"
		body = append(binary.BigEndian.AppendUint32([]byte{0}, uint32(len(body))), body...)
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, "https://"+w.all[0].addr+"/greylag.v1."+rpc, bytes.NewReader(body))
	must(w.t, err)
	request.Header.Set("Content-Type", kind)
	if p.user != nil {
		token, err := w.signer.Token(*p.user, time.Now())
		must(w.t, err)
		request.Header.Set("Authorization", "Bearer "+token)
	}
	response, err := p.http.Do(request)
	must(w.t, err)
	defer response.Body.Close()
	var got struct {
		Code     string
		Error    struct{ Code string }
		Outcomes []struct{ Code string }
	}
	if streams {
		head := make([]byte, 5)
		_, err = io.ReadFull(response.Body, head)
		must(w.t, err)
		if head[0]&2 == 0 {
			return ""
		}
	}
	must(w.t, json.NewDecoder(response.Body).Decode(&got))
	if len(got.Outcomes) > 0 {
		got.Code = strings.ToLower(strings.TrimPrefix(got.Outcomes[0].Code, "ERROR_CODE_"))
	}
	return got.Code + got.Error.Code
}

// TestForgedIdentities sends the headers by which a caller could claim another identity.
func TestForgedIdentities(t *testing.T) {
	w := newWorld(t, options{controllers: 2})
	for _, at := range w.all {
		for what, header := range map[string][2]string{
			"a forwarded controller":  {"Greylag-Forwarded", "controller/c1"},
			"a token of another sort": {"Authorization", "Basic cm9vdDpyb290"},
			"an invalid token":        {"Authorization", "Bearer glt_xxxx"},
		} {
			request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "https://"+at.addr+"/greylag.v1.ClusterService/AddMember",
				strings.NewReader(`{"id":"evil","address":"127.0.0.1:1"}`))
			must(t, err)
			request.Header.Set("Content-Type", "application/json")
			request.Header.Set(header[0], header[1])
			for _, config := range []*tls.Config{pki.ClientTLS(w.ca.Trust(), nil), pki.ClientTLS(w.ca.Trust(), w.identity(pki.RoleNode, "n1"))} {
				again := request.Clone(t.Context())
				again.Body, _ = request.GetBody()
				response, err := (&http.Client{Transport: &http.Transport{TLSClientConfig: config, ForceAttemptHTTP2: true}}).Do(again)
				must(t, err)
				if response.Body.Close(); response.StatusCode != http.StatusUnauthorized && response.StatusCode != http.StatusForbidden {
					t.Errorf("%s: %s", what, response.Status)
				}
			}
		}
	}
	// Forwarding a call does not lend it the controller's rights.
	if _, err := w.client(client.Config{TLS: pki.ClientTLS(w.ca.Trust(), nil)}, []*controllerHost{w.follower()}).Cluster().AddMember(t.Context(), &greylagv1.AddMemberRequest{Id: "evil", Address: "127.0.0.1:1"}); err == nil {
		t.Error("no member was added")
	}
	if _, err := w.as(bob, w.follower()).Cluster().AddMember(t.Context(), &greylagv1.AddMemberRequest{Id: "evil", Address: "127.0.0.1:1"}); err == nil {
		t.Error("bob added a member")
	}
}
