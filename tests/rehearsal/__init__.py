"""A rehearsal of the first deployment: the real `sam build`, `sam deploy` and `sam delete`, with the repository's
samconfig, against an emulator that enforces permissions: two stacks, a killed night, an update and a rollback.

The acts are the test modules, in the order of their names. What happens is in fixtures that note what they saw, so a
single test can be asked for and brings along what has to happen before it.

Where the emulator falls short of AWS the gap is bridged here, never in the product:
- Its CloudFormation knows no AWS::CloudWatch::CompositeAlarm and no AWS::Logs::QueryDefinition: what is of these types
  is taken out of each built template.
- Its Scheduler substitutes no context attributes and takes on no role. The `Input` of each deployed schedule is
  substituted here, and handed to its function through the Lambda API with the credentials of the Scheduler's role.
- No service of it takes on a role, so no trust policy is ever put to use: each is read, and a role's credentials are
  had by opening its trust policy to the account's owner for a moment.
- It puts failed events into the queue Failed, and log lines into their groups, without asking the function's role. The
  permission for the queue is tried with the role's credentials; those for logging are not.
- Metrics in log lines do not become metrics: they are read from the lines.
- It runs functions on its own interpreter, whatever Runtime and Architectures say, each in a process of its own.
- An update ends a function's process at once; AWS lets what runs come to its end. Nothing runs here while one is made.
"""
