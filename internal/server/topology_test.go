package server_test

import (
	"strings"
	"testing"

	"connectrpc.com/connect"

	greylagv1 "github.com/greylag/greylag/api/gen/greylag/v1"
	"github.com/greylag/greylag/internal/client"
	"github.com/greylag/greylag/internal/wire"
)

func TestTopology(t *testing.T) {
	w := newWorld(t, options{})
	for _, name := range []string{"n1", "n2", "n3"} {
		newNode(w, name).next()
	}
	c := w.as(root).Cluster()
	request := &greylagv1.SetTopologyRequest{
		RequestId: client.NewRequestID(), DryRun: true,
		Switches: []*greylagv1.Switch{
			{Name: "l1", Nodes: []string{"n[1,7]"}, Speed: 400}, {Name: "l2", Nodes: []string{"n2"}}, {Name: "top", Children: []string{"l1", "l2"}},
		},
	}
	dry, err := c.SetTopology(t.Context(), request)
	if must(t, err); dry.GetVersion() != 0 || len(dry.GetDisagreements()) != 2 {
		t.Errorf("dry run: %v", dry)
	}
	request.DryRun = false
	for range 2 { // the second is the first again
		done, err := c.SetTopology(t.Context(), request)
		if must(t, err); done.GetVersion() != 1 {
			t.Errorf("done: %v", done)
		}
	}
	now, err := w.as(olga).Cluster().GetTopology(t.Context(), &greylagv1.GetTopologyRequest{})
	must(t, err)
	var lines []string
	for _, d := range now.GetDisagreements() {
		lines = append(lines, wire.Word(d.GetKind())+" "+d.GetNodes())
	}
	if got := strings.Join(lines, ", "); now.GetVersion() != 1 || now.GetBy() != "root" || now.GetSwitches()[0].GetNodes()[0] != "n[1,7]" || got != "unplaced n3, unknown n7" {
		t.Errorf("%v: %s", now, got)
	}
	for what, switches := range map[string][]*greylagv1.Switch{
		"neither nodes nor switches": {{Name: "a"}},
		"which is no switch":         {{Name: "a", Children: []string{"b"}}},
		"not a host list":            {{Name: "a", Nodes: []string{"n["}}},
	} {
		_, err := c.SetTopology(t.Context(), &greylagv1.SetTopologyRequest{RequestId: client.NewRequestID(), Switches: switches})
		if connect.CodeOf(err) != connect.CodeInvalidArgument || !strings.Contains(err.Error(), what) {
			t.Errorf("want %q: %v", what, err)
		}
	}
	if _, err := c.SetTopology(t.Context(), &greylagv1.SetTopologyRequest{RequestId: client.NewRequestID(), ExpectVersion: 7}); connect.CodeOf(err) != connect.CodeFailedPrecondition {
		t.Errorf("another version expected: %v", err)
	}
}
