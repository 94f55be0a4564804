"""Administration of a home: setup and models, health, the system service, the inbox, the report, deletion."""
