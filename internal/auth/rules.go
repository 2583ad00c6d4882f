package auth

import (
	"github.com/greylag/greylag/internal/command"
	"github.com/greylag/greylag/internal/pki"
)

// least is the lowest role that may make a call.
type least uint8

const (
	byNobody least = iota // the zero value: deny by default
	byUser
	byOperator
	byAdmin
)

// who says which people may make a call.
func (l least) who() string {
	return [...]string{"nobody may", "users may", "operators and administrators may", "administrators may"}[l]
}

func (l least) role() command.Role {
	return [...]command.Role{command.RoleAdmin, command.RoleUser, command.RoleOperator, command.RoleAdmin}[l]
}

// deed is what a call that not everybody may make does, in words for who was denied it.
func deed(rpc RPC) string {
	switch rpc {
	case "JobService/Cancel":
		return "cancel or signal another's job"
	case "JobService/Update":
		return "change another's job"
	case "JobService/Script":
		return "read the script of another's job"
	case "JobService/Logs":
		return "read the output of another's job"
	case RaisePriority:
		return "put a job before others or lengthen one that runs"
	case OverrideHold:
		return "release a job that an administrator held"
	case "ClusterService/UpdateNodes":
		return "drain, resume or remove nodes"
	case "ClusterService/AddMember", "ClusterService/RemoveMember":
		return "add or remove controllers"
	case "ClusterService/CreateToken":
		return "let hosts join"
	case "ClusterService/Certificates":
		return "list certificates"
	case "ClusterService/Revoke":
		return "revoke certificates"
	case "ClusterService/Rotate":
		return "rotate the CA"
	case "ClusterService/Transfer":
		return "choose the leader"
	case "ClusterService/Apply":
		return "change the policy"
	case "ClusterService/SetTopology":
		return "change the topology"
	case "ClusterService/Snapshot":
		return "back up the cluster"
	case "CreditService/Verify":
		return "verify the journal of credits"
	case "ClusterService/Audit":
		return "read the audit log"
	}
	return "call " + string(rpc)
}

// rule is one row of the table.
type rule struct {
	own      least      // on what is the caller's own, or nobody's
	others   least      // on what is another's
	machines []pki.Role // programs that may call it by certificate
	anybody  bool       // without any proof
}

// rules is the table. A person's role counts by own and others; a program's by machines alone.
func rules(rpc RPC) (rule, bool) {
	controllers := []pki.Role{pki.RoleController}
	nodes := []pki.Role{pki.RoleNode}
	switch rpc {
	// What others' jobs look like in these is ViewOf's to say.
	case "JobService/List", "JobService/Stream", "JobService/Get", "JobService/Watch", "ClusterService/Why", "ClusterService/Plan",
		"HistoryService/Jobs":
		return rule{own: byUser, others: byUser}, true
	// Nobody submits for another.
	case "JobService/Submit", "JobService/Forecast":
		return rule{own: byUser}, true
	case "JobService/Cancel", "JobService/Update", "JobService/Script", "JobService/Logs":
		return rule{own: byUser, others: byOperator}, true
	case RaisePriority, OverrideHold:
		return rule{own: byOperator, others: byOperator}, true

	// Daemons learn the controllers' addresses from it.
	case "ClusterService/Status":
		return rule{own: byUser, others: byUser, machines: []pki.Role{pki.RoleController, pki.RoleNode, pki.RoleAuth}}, true
	case "ClusterService/Info", "ClusterService/Nodes", "ClusterService/Policy",
		"ClusterService/Topology":
		return rule{own: byUser, others: byUser, machines: []pki.Role{pki.RoleController, pki.RoleNode}}, true
	case "ClusterService/UpdateNodes":
		return rule{own: byOperator, others: byOperator}, true
	// The join token in the request is the proof.
	case "ClusterService/Join":
		return rule{anybody: true}, true
	case "ClusterService/Renew", "ClusterService/Authorities":
		return rule{machines: []pki.Role{pki.RoleNode, pki.RoleAuth, pki.RoleController}}, true
	// A controller that holds a certificate has proved a controller's token; it may ask to be a member.
	case "ClusterService/AddMember":
		return rule{own: byAdmin, others: byAdmin, machines: controllers}, true
	case "ClusterService/CreateToken", "ClusterService/Revoke", "ClusterService/Rotate", "ClusterService/RemoveMember", "ClusterService/Transfer",
		"ClusterService/Apply", "ClusterService/SetTopology", "ClusterService/Snapshot":
		return rule{own: byAdmin, others: byAdmin}, true

	// Who may see whom, and which account a coordinator may change, the content tells.
	case "AccountService/Accounts", "AccountService/EditAccounts", "AccountService/DumpAccounts",
		"AccountService/LoadAccounts", "AccountService/Shares", "AccountService/Priorities":
		return rule{own: byUser, others: byUser}, true

	// Which changes are an administrator's alone, and whose balance is whose, the state tells.
	case "CreditService/ChangeCredits", "CreditService/Balances", "CreditService/Statement", "CreditService/Prices",
		"CreditService/Quote":
		return rule{own: byUser, others: byUser}, true
	case "CreditService/Verify", "ClusterService/Audit", "ClusterService/Certificates":
		return rule{own: byOperator, others: byOperator}, true

	// Rows about others are for those who may see them.
	case "ReportService/Usage", "ReportService/Ended", "ReportService/Credits", "ReportService/Capacity", "ReportService/Standing":
		return rule{own: byUser, others: byUser}, true

	// A node speaks for itself: the server takes its name from the certificate.
	case "NodeService/Register", "NodeService/Wanted", "NodeService/Report", "NodeService/Fetch", "NodeService/PushLog":
		return rule{machines: nodes}, true
	case "PeerService/ReadIndex", "PeerService/Finished", "PeerService/Blob", "PeerService/Rows", "PeerService/Authority":
		return rule{machines: controllers}, true
	}
	return rule{}, false
}
