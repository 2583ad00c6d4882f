package procedure

// table has a row for each RPC of the API, ordered by name.
var table = []Procedure{
	// The state decides which users a caller sees and which accounts a coordinator may change.
	{Name: "AccountService/ExportAccounts", Own: User, Others: User, Cost: 1},
	{Name: "AccountService/ImportAccounts", Own: User, Others: User, Route: Leader, Cost: 1, Mutation: true},
	{Name: "AccountService/ListAccounts", Own: User, Others: User, Cost: 1},
	{Name: "AccountService/ListPriorities", Own: User, Others: User, Cost: 1},
	{Name: "AccountService/ListShares", Own: User, Others: User, Cost: 1},
	{Name: "AccountService/UpdateAccounts", Own: User, Others: User, Route: Leader, Cost: 1, Mutation: true},

	{Name: "ClusterService/AddMember", Own: Admin, Others: Admin, Programs: Controllers, Action: "add controllers", Route: Leader, Cost: 1, Mutation: true}, // a new controller adds itself
	{Name: "ClusterService/CreateToken", Own: Admin, Others: Admin, Action: "make join tokens", Route: Leader, Cost: 1, Mutation: true},
	{Name: "ClusterService/EndLeases", Own: Operator, Others: Operator, Action: "end leases", Route: Leader, Cost: 1, Mutation: true},
	{Name: "ClusterService/ExplainJob", Own: User, Others: User, Cost: 10},
	{Name: "ClusterService/GetInfo", Own: User, Others: User, Programs: Controllers | Nodes, Cost: 1},
	{Name: "ClusterService/GetPlan", Own: User, Others: User, Cost: 10},
	{Name: "ClusterService/GetPolicy", Own: User, Others: User, Programs: Controllers | Nodes, Cost: 1},
	{Name: "ClusterService/GetStatus", Own: User, Others: User, Programs: Controllers | Nodes | LoginNodes, Cost: 1, Anytime: true},
	{Name: "ClusterService/GetTopology", Own: User, Others: User, Programs: Controllers | Nodes, Cost: 1},
	{Name: "ClusterService/Join", Public: true, Route: Leader, Cost: 1, Mutation: true}, // proved by its join token
	{Name: "ClusterService/ListAuthorities", Programs: Controllers | Nodes | LoginNodes, Cost: 1},
	{Name: "ClusterService/ListCertificates", Own: Operator, Others: Operator, Action: "list certificates", Cost: 1},
	{Name: "ClusterService/ListLeases", Own: User, Others: User, Cost: 1},
	{Name: "ClusterService/ListNodes", Own: User, Others: User, Programs: Controllers | Nodes, Cost: 1},
	{Name: "ClusterService/PlanBurst", Own: Operator, Others: Operator, Action: "see what would be leased", Cost: 20},
	{Name: "ClusterService/RemoveMember", Own: Admin, Others: Admin, Action: "remove controllers", Route: Leader, Cost: 1, Mutation: true},
	{Name: "ClusterService/RenewCertificate", Programs: Controllers | Nodes | LoginNodes, Route: Leader, Cost: 1, Mutation: true},
	{Name: "ClusterService/RevokeCertificates", Own: Admin, Others: Admin, Action: "revoke certificates", Route: Leader, Cost: 1, Mutation: true},
	{Name: "ClusterService/RotateAuthority", Own: Admin, Others: Admin, Action: "rotate the CA", Route: Leader, Cost: 1, Mutation: true},
	{Name: "ClusterService/SetPolicy", Own: Admin, Others: Admin, Action: "change the policy", Route: Leader, Cost: 1, Mutation: true},
	{Name: "ClusterService/SetTopology", Own: Admin, Others: Admin, Action: "change the topology", Route: Leader, Cost: 1, Mutation: true},
	{Name: "ClusterService/StreamAudit", Own: Operator, Others: Operator, Action: "read the audit journal", Cost: 1},
	{Name: "ClusterService/StreamSnapshot", Own: Admin, Others: Admin, Action: "back up the cluster", Route: CompleteHistory, Cost: 1},
	{Name: "ClusterService/TransferLeadership", Own: Admin, Others: Admin, Action: "transfer leadership", Route: Leader, Cost: 1, Mutation: true},
	{Name: "ClusterService/UpdateNodes", Own: Operator, Others: Operator, Action: "change nodes", Route: Leader, Cost: 1, Mutation: true},

	// The state decides whose balance a caller sees and which changes an administrator alone may make.
	{Name: "CreditService/ChangeCredits", Own: User, Others: User, Route: Leader, Cost: 1, Mutation: true},
	{Name: "CreditService/ListBalances", Own: User, Others: User, Cost: 1},
	{Name: "CreditService/ListPrices", Own: User, Others: User, Cost: 1},
	{Name: "CreditService/QuoteJobs", Own: User, Others: User, Cost: 10},
	{Name: "CreditService/StreamStatement", Own: User, Others: User, Cost: 20},
	{Name: "CreditService/VerifyJournals", Own: Operator, Others: Operator, Action: "verify the credit journal", Cost: 1},

	{Name: "HistoryService/StreamHistory", Own: User, Others: User, Route: CompleteHistory, Cost: 20},

	// auth.ViewOf decides what a caller sees of other users' jobs.
	{Name: "JobService/AttachStep", Own: User, Others: Operator, Action: "attach to steps of other users' jobs", Route: Leader, Cost: 1, Mutation: true},
	{Name: "JobService/BeginCheckpoint", Own: User, Route: Leader, Cost: 1},
	{Name: "JobService/CancelJobs", Own: User, Others: Operator, Action: "cancel or signal other users' jobs", Route: Leader, Cost: 1, Mutation: true},
	{Name: "JobService/CommitCheckpoint", Own: User, Route: Leader, Cost: 1, Mutation: true},
	{Name: "JobService/CreateStep", Own: User, Others: Operator, Action: "start steps in other users' jobs", Route: Leader, Cost: 1, Mutation: true},
	{Name: "JobService/DeleteSecrets", Own: User, Others: Admin, Action: "delete other users' secrets", Route: Leader, Cost: 1, Mutation: true},
	{Name: "JobService/ForecastJob", Own: User, Cost: 10},
	{Name: "JobService/GetJob", Own: User, Others: User, Route: CompleteHistory, Cost: 1},
	{Name: "JobService/GetScript", Own: User, Others: Operator, Action: "read the scripts of other users' jobs", Route: CompleteHistory, Cost: 1},
	{Name: "JobService/ListCron", Own: User, Others: Operator, Action: "list other users' recurring jobs", Cost: 1},
	{Name: "JobService/ListJobs", Own: User, Others: User, Route: CompleteHistory, Cost: 1},
	{Name: "JobService/ListSecrets", Own: User, Others: Admin, Action: "list other users' secrets", Route: Leader, Cost: 1},
	{Name: "JobService/RunCron", Own: User, Route: Leader, Cost: 1, Mutation: true},
	{Name: "JobService/SetCheckpoint", Own: User, Route: Leader, Cost: 1, Mutation: true},
	{Name: "JobService/SetCron", Own: User, Route: Leader, Cost: 10, Mutation: true},
	{Name: "JobService/SetSecret", Own: User, Route: Leader, Cost: 10, Mutation: true},
	{Name: "JobService/SignalStep", Own: User, Others: Operator, Action: "signal steps of other users' jobs", Route: Leader, Cost: 1, Mutation: true},
	{Name: "JobService/StreamJobs", Own: User, Others: User, Route: CompleteHistory, Cost: 1, Relayed: true},
	{Name: "JobService/StreamLogs", Own: User, Others: Operator, Action: "read the output of other users' jobs", Route: Leader, Cost: 1},
	{Name: "JobService/SubmitJobs", Own: User, Route: Leader, Cost: 1, Mutation: true},
	{Name: "JobService/UpdateCron", Own: User, Others: Operator, Action: "change other users' recurring jobs", Route: Leader, Cost: 1, Mutation: true},
	{Name: "JobService/UpdateJobs", Own: User, Others: Operator, Action: "change other users' jobs", Route: Leader, Cost: 1, Mutation: true},
	{Name: "JobService/WatchJobs", Own: User, Others: User, Route: CompleteHistory, Cost: 1, Waits: true},

	// A node acts for itself: the server takes its name from the certificate.
	{Name: "NodeService/GetContent", Programs: Nodes, Route: FindLeader, Cost: 1, Waits: true},
	{Name: "NodeService/GetSecrets", Programs: Nodes, Route: FindLeader, Cost: 1, Waits: true},
	{Name: "NodeService/PushLog", Programs: Nodes, Route: FindLeader, Cost: 1, Waits: true},
	{Name: "NodeService/RegisterNode", Programs: Nodes, Route: FindLeader, Cost: 1, Mutation: true},
	{Name: "NodeService/ReportTasks", Programs: Nodes, Route: FindLeader, Cost: 1, Mutation: true},
	{Name: "NodeService/WatchTasks", Programs: Nodes, Route: FindLeader, Cost: 1, Waits: true},

	{Name: "PeerService/GetAuthority", Programs: Controllers, Cost: 1},
	{Name: "PeerService/GetBlobs", Programs: Controllers, Cost: 1},
	{Name: "PeerService/GetReadIndex", Programs: Controllers, Cost: 1},
	{Name: "PeerService/ListFinishedJobs", Programs: Controllers, Cost: 1},
	{Name: "PeerService/ListJournalRows", Programs: Controllers, Cost: 1},

	{Name: "ReportService/GetCapacity", Own: User, Others: User, Route: CompleteHistory, Cost: 20},
	{Name: "ReportService/GetStanding", Own: User, Others: User, Cost: 20},
	{Name: "ReportService/StreamCredits", Own: User, Others: User, Route: CompleteHistory, Cost: 20},
	{Name: "ReportService/StreamEndedJobs", Own: User, Others: User, Route: CompleteHistory, Cost: 20},
	{Name: "ReportService/StreamEndedLeases", Own: User, Others: User, Route: CompleteHistory, Cost: 20},
	{Name: "ReportService/StreamUsage", Own: User, Others: User, Route: CompleteHistory, Cost: 20},

	// These are not RPCs: they switch the connection to another protocol (package tunnel).
	{Name: "Tunnel/Accept", Own: User, Others: User, Cost: 1},
	{Name: "Tunnel/Connect", Own: User, Others: User, Cost: 1},
	{Name: "Tunnel/Listen", Own: User, Others: User, Cost: 1},
}

// RaisePriority is the row of an update that sets a negative nice value.
var RaisePriority = &Procedure{Name: "JobService/UpdateJobs", Own: Operator, Others: Operator, Action: "set a negative nice value"}
