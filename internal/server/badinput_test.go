package server_test

import (
	"encoding/binary"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"testing"

	greylagv1 "github.com/greylag/greylag/api/gen/greylag/v1"
)

// TestBadInput checks that a request with a field or an enum value that the API does not have is
// refused with a message that names the field, and changes nothing.
func TestBadInput(t *testing.T) {
	w := newWorld(t, options{})
	c := w.browser()
	id := w.submit(w.as(ann), job("subject"))
	request := func() string { // what a user can change; a pass of the scheduler changes the rest

		answer, err := w.as(ann).Jobs().GetJob(t.Context(), &greylagv1.GetJobRequest{Job: strconv.FormatUint(id, 10)})
		must(t, err)
		j := answer.GetJobs()[0]
		return books(w) + fmt.Sprint(j.GetState(), j.GetHold(), j.GetNice(), j.GetTimeLimit(), j.GetComment(), j.GetDepends())
	}
	before := request()
	for _, x := range []struct{ rpc, body, want string }{
		{"JobService/UpdateJobs", `{"requestId":"a","filter":{"jobs":["1"]},"action":"JOB_ACTION_PAUSE"}`, `enum field action`},
		{"JobService/UpdateJobs", `{"requestId":"a","filter":{"jobs":["1"]},"action":99}`, `action: 99 is not a JobAction`},
		{"JobService/UpdateJobs", `{"requestId":"a","filter":{"jobs":["1"]}}`, `action is not set: want JOB_ACTION_SET, JOB_ACTION_HOLD`},
		{"JobService/UpdateJobs", `{"requestId":"a","filter":{"jobs":["1"]},"action":"JOB_ACTION_HOLD","minutes":1}`, `unknown field \"minutes\"`},
		{"JobService/CancelJobs", `{"requestId":"a","filter":{"states":[99]}}`, `filter.states[0]: 99 is not a JobState`},
		{"JobService/CancelJobs", `{"requestId":"a","filter":{"states":["all"]}}`, `enum field states`},
		{"JobService/SubmitJobs", `{"requestId":"a","jobs":[{"script":"IyEvYmluL3NoCg==","depends":[{"kind":99,"job":"1"}]}]}`, `jobs[0].depends[0].kind: 99 is not a DependencyKind`},
		{"JobService/SubmitJobs", `{"requestId":"a","jobs":[{"script":"IyEvYmluL3NoCg==","depends":[{"job":"1"}]}]}`, `depends.kind is not set`},
		{"ClusterService/UpdateNodes", `{"requestId":"a","names":["n1"]}`, `action is not set`},
		{"ClusterService/CreateToken", `{"requestId":"a"}`, `role is not set: want HOST_ROLE_`},
		{"ClusterService/RotateAuthority", `{"requestId":"a","step":7}`, `step: 7 is not a RotationStep`},
		{"AccountService/UpdateAccounts", `{"requestId":"a","edits":[{"account":"x"}]}`, `edits[0].action is not set`},
		{"CreditService/ChangeCredits", `{"requestId":"a","grant":{"account":"x","amount":"1","class":9}}`, `grant.class: 9 is not a BucketClass`},
		{"CreditService/ChangeCredits", `{"requestId":"a"}`, `change is not set: want grant, void, set_price, set_budget, refund, correct or close`},
		{"CreditService/ChangeCredits", `{"requestId":"a","void":{"bucket":"1"},"close":{"period":"2020-01"}}`, `oneof`},
		{"CreditService/ChangeCredits", `{"requestId":"a","action":"grant","account":"x","amount":"1"}`, `unknown field \"action\"`},
		{"CreditService/ChangeCredits", `{"requestId":"a","account":"x","amount":"1"}`, `unknown field \"account\"`},
	} {
		response, text := w.post(c, root, x.rpc, "application/json", strings.NewReader(x.body))
		if response.StatusCode != http.StatusBadRequest || !strings.Contains(text, x.want) {
			t.Errorf("%s %s: %s %s, want %q", x.rpc, x.body, response.Status, text, x.want)
		}
	}
	for body, want := range map[string]string{`{"kind":99}`: "kind: 99 is", `{"kind":"AUDIT_KIND_HOLD","signal":9}`: "signal"} {
		_, text := w.post(c, root, "ClusterService/StreamAudit", "application/connect+json", strings.NewReader(enveloped(body)))
		if !strings.Contains(text, "invalid_argument") || !strings.Contains(text, want) {
			t.Errorf("StreamAudit %s: %s, want %q", body, text, want)
		}
	}
	if after := request(); after != before {
		t.Errorf("job %d or the credits changed: %s, was %s", id, after, before)
	}
}

// enveloped returns a message of a stream: flags, length, content.
func enveloped(body string) string {
	return string(binary.BigEndian.AppendUint32([]byte{0}, uint32(len(body)))) + body
}
