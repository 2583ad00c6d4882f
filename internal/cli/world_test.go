package cli_test

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	greylagv1 "github.com/greylag/greylag/api/gen/greylag/v1"
	"github.com/greylag/greylag/api/gen/greylag/v1/greylagv1connect"
	"github.com/greylag/greylag/internal/hostlist"
	"github.com/greylag/greylag/internal/pki"
	"github.com/greylag/greylag/internal/wire"
)

// world is a whole cluster in memory: jobs, nodes and policy.
type world struct {
	instanceKnown atomic.Bool // the first join of an instance comes too early
	*memory
	greylagv1connect.UnimplementedClusterServiceHandler
	ca      *pki.CA
	address string
	nodes   *greylagv1.ListNodesResponse
	info    *greylagv1.GetInfoResponse
	policy  string
	version uint64
	fabric  []*greylagv1.Switch
	book    *accountBook
	past    *past
	rows    *rowBook
	reasons []*greylagv1.ExplainJobResponse
	planned greylagv1.GetPlanResponse

	rotating string // the phase of a rotation of the CA; "" for none
	t        testing.TB
	bank     atomic.Pointer[bank] // answers everything, once a page has begun one
}

func newWorld(ca *pki.CA, address string) *world {
	w := &world{
		memory: &memory{next: 100, bodies: make(map[uint64][]byte)}, ca: ca, address: address,
		nodes: &greylagv1.ListNodesResponse{}, info: &greylagv1.GetInfoResponse{}, policy: "cluster = \"page\"\n", version: 3,
	}
	w.book = &accountBook{w: w, file: "[[account]]\nname = 'uni'\n"}
	w.past = &past{w: w}
	w.rows = &rowBook{w: w}
	return w
}

// authenticated refuses calls without a token, as a controller does, except Join.
func (w *world) authenticated(next http.Handler) http.Handler {
	refusal := connect.NewErrorWriter()
	return http.HandlerFunc(func(out http.ResponseWriter, r *http.Request) {
		if b := w.bank.Load(); b != nil {
			b.ServeHTTP(out, r)
			return
		}
		if !strings.HasPrefix(r.Header.Get("Authorization"), "Bearer ") && !strings.HasSuffix(r.URL.Path, "/Join") {
			_ = refusal.Write(out, r, refuse(connect.CodeUnauthenticated, "", "no token")) // the test fails then
			return
		}
		next.ServeHTTP(out, r)
	})
}

func (w *world) GetStatus(context.Context, *greylagv1.GetStatusRequest) (*greylagv1.GetStatusResponse, error) {
	return &greylagv1.GetStatusResponse{
		Cluster: "page", ClusterId: "page-1", Id: "ctl-1", Leader: "ctl-1", LeaderAddress: "ctl1:7117", Term: 3, CommitIndex: 120, AppliedIndex: 120,
		Version: "v1", Digest: "beef", ActiveJobs: 5, FinishedJobs: 7,
		Members: []*greylagv1.Member{
			{Id: "ctl-1", Name: "c1", Address: "ctl1:7117", Voter: true, Leader: true, MatchIndex: 120},
			{Id: "ctl-2", Name: "c2", Address: "ctl2:7117", Voter: true, LastContact: durationpb.New(41 * time.Millisecond), MatchIndex: 119},
			{Id: "ctl-3", Address: "ctl3:7117", LastContact: durationpb.New(2 * time.Second), MatchIndex: 80},
		},
	}, nil
}

func (w *world) GetInfo(context.Context, *greylagv1.GetInfoRequest) (*greylagv1.GetInfoResponse, error) {
	return w.info, nil
}

func (w *world) ListNodes(_ context.Context, r *greylagv1.ListNodesRequest) (*greylagv1.ListNodesResponse, error) {
	out := &greylagv1.ListNodesResponse{}
	var names []string
	for _, list := range r.Names {
		more, err := hostlist.Expand(list)
		if err != nil {
			return nil, refuse(connect.CodeInvalidArgument, "", "%v", err)
		}
		names = append(names, more...)
	}
	for _, n := range w.nodes.Nodes {
		if len(r.Names) == 0 || slices.Contains(names, n.Name) {
			out.Nodes = append(out.Nodes, n)
		}
	}
	return out, nil
}

func (w *world) UpdateNodes(_ context.Context, r *greylagv1.UpdateNodesRequest) (*greylagv1.UpdateNodesResponse, error) {
	w.note(r)
	if r.Names[0] == "n99" {
		return nil, refuse(connect.CodeNotFound, "gctl nodes lists the nodes", "no node n99")
	}
	names := slices.DeleteFunc(slices.Clone(r.Names), func(name string) bool {
		return r.Action == greylagv1.NodeAction_NODE_ACTION_RESUME && slices.ContainsFunc(w.nodes.GetNodes(), func(n *greylagv1.Node) bool { return n.Name == name && !n.Drain })
	})
	return &greylagv1.UpdateNodesResponse{Names: names, Index: 8}, nil
}

func (w *world) CreateToken(_ context.Context, r *greylagv1.CreateTokenRequest) (*greylagv1.CreateTokenResponse, error) {
	expires := time.Now().Add(r.Valid.AsDuration())
	token, _, err := pki.MintToken(w.ca.Trust(), pki.Role(wire.Word(r.Role)), expires)
	return &greylagv1.CreateTokenResponse{Token: token.String(), Expires: timestamppb.New(expires)}, err
}

func (w *world) Join(_ context.Context, r *greylagv1.JoinRequest) (*greylagv1.JoinResponse, error) {
	token, err := pki.ParseToken(r.Token)
	if err != nil {
		return nil, err
	}
	name := r.Name
	switch {
	case r.Instance == "":
	case r.Instance != "i-7":
		return nil, connect.NewError(connect.CodePermissionDenied, fmt.Errorf("instance %q does not belong to the launch of the join token", r.Instance))
	case !w.instanceKnown.Swap(true):
		return nil, connect.NewError(connect.CodeUnavailable, fmt.Errorf("instance %q is not known yet: try again", r.Instance))
	default:
		name = "cloud-7"
	}
	cert, err := w.ca.Sign(r.Csr, pki.Grant{Peer: pki.Peer{ClusterID: "page-1", Role: token.Role, Name: name}}, time.Now())
	if err != nil {
		return nil, err
	}
	answer := &greylagv1.JoinResponse{Certificate: cert, Ca: w.ca.Trust().DERs(), Cluster: "page", ClusterId: "page-1", Controllers: []string{w.address}}
	if token.Role == pki.RoleController {
		answer.CaKey, err = w.ca.KeyPEM()
	}
	return answer, err
}

// ListCertificates returns those of a node whose older one was revoked, and of a login host.
func (w *world) ListCertificates(context.Context, *greylagv1.ListCertificatesRequest) (*greylagv1.ListCertificatesResponse, error) {
	day := func(n int) *timestamppb.Timestamp {
		return timestamppb.New(time.Date(2026, 3, n, 8, 0, 0, 0, time.UTC))
	}
	holder := func(role, name, serial, ca string) *greylagv1.CertificateHolder {
		return &greylagv1.CertificateHolder{Role: wire.Enum[greylagv1.HostRole](role), Name: name, Certificates: []*greylagv1.Certificate{{
			Serial: serial, Issued: day(2), Expires: day(31), Origin: greylagv1.CertificateOrigin_CERTIFICATE_ORIGIN_JOINED, Ca: ca,
		}}}
	}
	node := holder("node", "n1", "0a1b2c3d4e5f60718293a4b5c6d7e8f9", "1122334455667788")
	node.Certificates[0].Revoked, node.Revoked, node.RevokedBy, node.Reason = true, day(3), "root", "stolen"
	answer := &greylagv1.ListCertificatesResponse{Holders: []*greylagv1.CertificateHolder{
		holder("auth", "login1", "f00dfeed0000000000000000deadbeef", "1122334455667788"), node, {Role: greylagv1.HostRole_HOST_ROLE_NODE, Name: "n2", Revoked: day(4), RevokedBy: "root"},
	}}
	if w.rotating != "" {
		answer.Rotation = &greylagv1.Rotation{Phase: wire.Enum[greylagv1.RotationPhase](w.rotating), OldCa: "1122334455667788", NewCa: "99aabbccddeeff00", Started: day(5), By: "root", WaitsFor: []string{"auth/login1"}}
	}
	return answer, nil
}

func (w *world) RotateAuthority(_ context.Context, r *greylagv1.RotateAuthorityRequest) (*greylagv1.RotateAuthorityResponse, error) {
	w.note(r)
	w.rotating = map[string]string{"begin": "renewing", "finish": "finishing", "cancel": "renewing"}[wire.Word(r.Step)]
	return &greylagv1.RotateAuthorityResponse{}, nil
}

func (w *world) RevokeCertificates(_ context.Context, r *greylagv1.RevokeCertificatesRequest) (*greylagv1.RevokeCertificatesResponse, error) {
	w.note(r)
	return &greylagv1.RevokeCertificatesResponse{}, nil
}

func (w *world) AddMember(_ context.Context, r *greylagv1.AddMemberRequest) (*greylagv1.AddMemberResponse, error) {
	w.note(r)
	return &greylagv1.AddMemberResponse{}, nil
}

func (w *world) RemoveMember(_ context.Context, r *greylagv1.RemoveMemberRequest) (*greylagv1.RemoveMemberResponse, error) {
	w.note(r)
	return &greylagv1.RemoveMemberResponse{}, nil
}

func (w *world) TransferLeadership(_ context.Context, r *greylagv1.TransferLeadershipRequest) (*greylagv1.TransferLeadershipResponse, error) {
	w.note(r)
	return &greylagv1.TransferLeadershipResponse{Leader: "ctl-2"}, nil
}

func (w *world) GetPolicy(context.Context, *greylagv1.GetPolicyRequest) (*greylagv1.GetPolicyResponse, error) {
	return &greylagv1.GetPolicyResponse{Toml: w.policy, Version: w.version}, nil
}

func (w *world) SetPolicy(_ context.Context, r *greylagv1.SetPolicyRequest) (*greylagv1.SetPolicyResponse, error) {
	w.note(r)
	if r.ExpectVersion != 0 && r.ExpectVersion != w.version {
		return nil, refuse(connect.CodeAborted, "gctl apply --force", "the policy is at version %d, not %d", w.version, r.ExpectVersion)
	}
	diff := ""
	if r.Toml != w.policy {
		diff = "-" + w.policy + "+" + r.Toml
	}
	if !r.DryRun {
		w.policy, w.version = r.Toml, w.version+1
	}
	answer := &greylagv1.SetPolicyResponse{Diff: diff, Version: w.version}
	if line := strings.Index(r.Toml, "nowhere"); line >= 0 {
		answer.Warnings = []string{r.Name + ":" + strconv.Itoa(1+strings.Count(r.Toml[:line], "\n")) + ": nodes: \"nowhere\" matches no node"}
	}
	return answer, nil
}

func (w *world) StreamSnapshot(_ context.Context, _ *greylagv1.StreamSnapshotRequest, s *connect.ServerStream[greylagv1.StreamSnapshotResponse]) error {
	for _, part := range []string{"one ", "two\n"} {
		if err := s.Send(&greylagv1.StreamSnapshotResponse{Data: []byte(part)}); err != nil {
			return err
		}
	}
	return nil
}
