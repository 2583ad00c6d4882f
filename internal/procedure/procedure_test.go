package procedure_test

import (
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	_ "github.com/greylag/greylag/api/gen/greylag/v1" // registers the descriptors
	"github.com/greylag/greylag/internal/procedure"
)

// methods returns the RPCs of the API by name.
func methods() map[procedure.Name]protoreflect.MethodDescriptor {
	all := make(map[procedure.Name]protoreflect.MethodDescriptor)
	protoregistry.GlobalFiles.RangeFilesByPackage("greylag.v1", func(file protoreflect.FileDescriptor) bool {
		for i := range file.Services().Len() {
			service := file.Services().Get(i)
			for k := range service.Methods().Len() {
				method := service.Methods().Get(k)
				all[procedure.Name(service.Name()+"/"+method.Name())] = method
			}
		}
		return true
	})
	return all
}

func TestTableMatchesTheAPI(t *testing.T) {
	rpcs := methods()
	if len(rpcs) == 0 {
		t.Fatal("the API has no services")
	}
	seen := make(map[procedure.Name]bool)
	for _, p := range procedure.All() {
		if rpcs[p.Name] == nil && !strings.HasPrefix(string(p.Name), "Tunnel/") {
			t.Errorf("%s is in the table, not in the API", p.Name)
		}
		if seen[p.Name] {
			t.Errorf("%s has two rows", p.Name)
		}
		seen[p.Name] = true
		if !p.Known() || procedure.Of(p.Name).Name != p.Name || !procedure.OfPath(p.Path()).Known() {
			t.Errorf("Of does not find %s: is the table ordered by name?", p.Name)
		}
	}
	for name := range rpcs {
		if !seen[name] {
			t.Errorf("%s is in the API, not in the table", name)
		}
	}
}

// TestRowsAreConsistent checks each row against the rules that the columns follow.
func TestRowsAreConsistent(t *testing.T) {
	rpcs := methods()
	leads := []procedure.Route{procedure.Leader, procedure.FindLeader}
	for _, p := range procedure.All() {
		method := rpcs[p.Name]
		if method == nil {
			continue // reported above, or a tunnel
		}
		switch streams := method.IsStreamingServer(); {
		case p.Mutation && !slices.Contains(leads, p.Route):
			t.Errorf("%s changes the cluster, and another controller than the leader answers it", p.Name)
		case method.Input().Fields().ByName("request_id") != nil && !p.Mutation:
			t.Errorf("%s has a request ID and is no mutation", p.Name)
		case p.Mutation && streams:
			t.Errorf("%s changes the cluster and answers with a stream", p.Name)
		case p.Relayed && !streams:
			t.Errorf("%s is marked as relayed, and gauthd forwards each call without a stream", p.Name)
		case p.Cost < 1:
			t.Errorf("%s costs %d requests", p.Name, p.Cost)
		case max(p.Own, p.Others) > procedure.User && p.Action == "":
			t.Errorf("%s requires role %s and has no action for the refusal", p.Name, max(p.Own, p.Others))
		case p.BetweenControllers() != strings.HasPrefix(string(p.Name), "PeerService/"):
			t.Errorf("%s: BetweenControllers is %v", p.Name, p.BetweenControllers())
		}
	}
}

func TestUnknownNamesAreDenied(t *testing.T) {
	for _, name := range []procedure.Name{"", "JobService/NoSuch", "JobService/UpdateJobs ", "jobservice/list"} {
		if p := procedure.Of(name); p.Known() || p.Own != procedure.NoUser || p.Others != procedure.NoUser || p.Programs != 0 || p.Public {
			t.Errorf("%q has the row %+v", name, *p)
		}
	}
}

func TestRefusal(t *testing.T) {
	for _, x := range []struct {
		name     procedure.Name
		required procedure.Role
		want     string
	}{
		{"ClusterService/UpdateNodes", procedure.Operator, "ann may not change nodes: requires role operator"},
		{"ClusterService/SetTopology", procedure.Admin, "ann may not change the topology: requires role admin"},
		{"JobService/SubmitJobs", procedure.NoUser, "ann may not call JobService/SubmitJobs"},
		{"JobService/ListJobs", procedure.User, "ann may not call JobService/ListJobs"},
	} {
		if got := procedure.Of(x.name).Refusal("ann", x.required); got != x.want {
			t.Errorf("%s: %q, want %q", x.name, got, x.want)
		}
	}
}
