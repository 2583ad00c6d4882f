package procedure

// table has a row for each RPC of the API, ordered by name.
var table = []Procedure{
	// The state decides which users a caller sees and which accounts a coordinator may change.
	{Name: "AccountService/Accounts", Own: User, Others: User, Cost: 1},
	{Name: "AccountService/DumpAccounts", Own: User, Others: User, Cost: 1},
	{Name: "AccountService/EditAccounts", Own: User, Others: User, Route: Leader, Cost: 1, Mutation: true},
	{Name: "AccountService/LoadAccounts", Own: User, Others: User, Route: Leader, Cost: 1, Mutation: true},
	{Name: "AccountService/Priorities", Own: User, Others: User, Cost: 1},
	{Name: "AccountService/Shares", Own: User, Others: User, Cost: 1},

	{Name: "ClusterService/AddMember", Own: Admin, Others: Admin, Programs: Controllers, Action: "add controllers", Route: Leader, Cost: 1, Mutation: true}, // a new controller adds itself
	{Name: "ClusterService/Apply", Own: Admin, Others: Admin, Action: "change the policy", Route: Leader, Cost: 1, Mutation: true},
	{Name: "ClusterService/Audit", Own: Operator, Others: Operator, Action: "read the audit journal", Cost: 1},
	{Name: "ClusterService/Authorities", Programs: Controllers | Nodes | LoginNodes, Cost: 1},
	{Name: "ClusterService/Certificates", Own: Operator, Others: Operator, Action: "list certificates", Cost: 1},
	{Name: "ClusterService/CreateToken", Own: Admin, Others: Admin, Action: "make join tokens", Route: Leader, Cost: 1, Mutation: true},
	{Name: "ClusterService/Info", Own: User, Others: User, Programs: Controllers | Nodes, Cost: 1},
	{Name: "ClusterService/Join", Public: true, Route: Leader, Cost: 1, Mutation: true}, // proved by its join token
	{Name: "ClusterService/Nodes", Own: User, Others: User, Programs: Controllers | Nodes, Cost: 1},
	{Name: "ClusterService/Plan", Own: User, Others: User, Cost: 10},
	{Name: "ClusterService/Policy", Own: User, Others: User, Programs: Controllers | Nodes, Cost: 1},
	{Name: "ClusterService/RemoveMember", Own: Admin, Others: Admin, Action: "remove controllers", Route: Leader, Cost: 1, Mutation: true},
	{Name: "ClusterService/Renew", Programs: Controllers | Nodes | LoginNodes, Route: Leader, Cost: 1, Mutation: true},
	{Name: "ClusterService/Revoke", Own: Admin, Others: Admin, Action: "revoke certificates", Route: Leader, Cost: 1, Mutation: true},
	{Name: "ClusterService/Rotate", Own: Admin, Others: Admin, Action: "rotate the CA", Route: Leader, Cost: 1, Mutation: true},
	{Name: "ClusterService/SetTopology", Own: Admin, Others: Admin, Action: "change the topology", Route: Leader, Cost: 1, Mutation: true},
	{Name: "ClusterService/Snapshot", Own: Admin, Others: Admin, Action: "back up the cluster", Route: CompleteHistory, Cost: 1},
	{Name: "ClusterService/Status", Own: User, Others: User, Programs: Controllers | Nodes | LoginNodes, Cost: 1, Anytime: true},
	{Name: "ClusterService/Topology", Own: User, Others: User, Programs: Controllers | Nodes, Cost: 1},
	{Name: "ClusterService/Transfer", Own: Admin, Others: Admin, Action: "transfer leadership", Route: Leader, Cost: 1, Mutation: true},
	{Name: "ClusterService/UpdateNodes", Own: Operator, Others: Operator, Action: "change nodes", Route: Leader, Cost: 1, Mutation: true},
	{Name: "ClusterService/Why", Own: User, Others: User, Cost: 10},

	// The state decides whose balance a caller sees and which changes an administrator alone may make.
	{Name: "CreditService/Balances", Own: User, Others: User, Cost: 1},
	{Name: "CreditService/ChangeCredits", Own: User, Others: User, Route: Leader, Cost: 1, Mutation: true},
	{Name: "CreditService/Prices", Own: User, Others: User, Cost: 1},
	{Name: "CreditService/Quote", Own: User, Others: User, Cost: 10},
	{Name: "CreditService/Statement", Own: User, Others: User, Cost: 20},
	{Name: "CreditService/Verify", Own: Operator, Others: Operator, Action: "verify the credit journal", Cost: 1},

	{Name: "HistoryService/Jobs", Own: User, Others: User, Route: CompleteHistory, Cost: 20},

	// auth.ViewOf decides what a caller sees of other users' jobs.
	{Name: "JobService/Cancel", Own: User, Others: Operator, Action: "cancel or signal other users' jobs", Route: Leader, Cost: 1, Mutation: true},
	{Name: "JobService/Forecast", Own: User, Cost: 10},
	{Name: "JobService/Get", Own: User, Others: User, Route: CompleteHistory, Cost: 1},
	{Name: "JobService/List", Own: User, Others: User, Route: CompleteHistory, Cost: 1},
	{Name: "JobService/Logs", Own: User, Others: Operator, Action: "read the output of other users' jobs", Route: Leader, Cost: 1},
	{Name: "JobService/Script", Own: User, Others: Operator, Action: "read the scripts of other users' jobs", Route: CompleteHistory, Cost: 1},
	{Name: "JobService/Stream", Own: User, Others: User, Route: CompleteHistory, Cost: 1, Relayed: true},
	{Name: "JobService/Submit", Own: User, Route: Leader, Cost: 1, Mutation: true},
	{Name: "JobService/Update", Own: User, Others: Operator, Action: "change other users' jobs", Route: Leader, Cost: 1, Mutation: true},
	{Name: "JobService/Watch", Own: User, Others: User, Route: CompleteHistory, Cost: 1, Waits: true},

	// A node acts for itself: the server takes its name from the certificate.
	{Name: "NodeService/Fetch", Programs: Nodes, Route: FindLeader, Cost: 1, Waits: true},
	{Name: "NodeService/PushLog", Programs: Nodes, Route: FindLeader, Cost: 1, Waits: true},
	{Name: "NodeService/Register", Programs: Nodes, Route: FindLeader, Cost: 1, Mutation: true},
	{Name: "NodeService/Report", Programs: Nodes, Route: FindLeader, Cost: 1, Mutation: true},
	{Name: "NodeService/Wanted", Programs: Nodes, Route: FindLeader, Cost: 1, Waits: true},

	{Name: "PeerService/Authority", Programs: Controllers, Cost: 1},
	{Name: "PeerService/Blob", Programs: Controllers, Cost: 1},
	{Name: "PeerService/Finished", Programs: Controllers, Cost: 1},
	{Name: "PeerService/ReadIndex", Programs: Controllers, Cost: 1},
	{Name: "PeerService/Rows", Programs: Controllers, Cost: 1},

	{Name: "ReportService/Capacity", Own: User, Others: User, Route: CompleteHistory, Cost: 20},
	{Name: "ReportService/Credits", Own: User, Others: User, Route: CompleteHistory, Cost: 20},
	{Name: "ReportService/Ended", Own: User, Others: User, Route: CompleteHistory, Cost: 20},
	{Name: "ReportService/Standing", Own: User, Others: User, Cost: 20},
	{Name: "ReportService/Usage", Own: User, Others: User, Route: CompleteHistory, Cost: 20},
}

// RaisePriority is the row of an update that sets a negative nice value.
var RaisePriority = &Procedure{Name: "JobService/Update", Own: Operator, Others: Operator, Action: "set a negative nice value"}
